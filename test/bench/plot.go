// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"strings"
)

// plot is a bar chart. Bars with "Lanyard" in their name have another color.
type plot struct {
	Name, Title string
	Groups      []group
}

type group struct {
	Name string
	Bars []bar
}

type bar struct {
	Name  string
	Value float64
}

// The sizes of a plot in pixels.
const (
	plotWidth  = 720
	labelWidth = 190 // left of the bars
	valueWidth = 60  // right of the longest bar
	lineHeight = 22
)

// style has colors for light and dark pages.
const style = `text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600}.l{fill:#0969da}.o{fill:#afb8c1}` +
	`@media(prefers-color-scheme:dark){text{fill:#e6edf3}.l{fill:#4493f8}.o{fill:#6e7681}}`

// svg returns the plot as an SVG picture.
func (p *plot) svg() string {
	longest := 0.0
	for _, g := range p.Groups {
		for _, b := range g.Bars {
			longest = max(longest, b.Value)
		}
	}
	var lines strings.Builder
	y := lineHeight
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&lines, format+"\n", args...) }
	line(`<text class="t" x="0" y="%d">%s</text>`, y-6, html.EscapeString(p.Title))
	for _, g := range p.Groups {
		y += lineHeight + lineHeight/2
		line(`<text class="t" x="0" y="%d">%s</text>`, y-6, html.EscapeString(g.Name))
		for _, b := range g.Bars {
			y += lineHeight
			class := "o"
			if strings.Contains(b.Name, "Lanyard") {
				class = "l"
			}
			width := b.Value / max(longest, 1e-9) * (plotWidth - labelWidth - valueWidth)
			line(`<text x="0" y="%d">%s</text>`, y-6, html.EscapeString(b.Name))
			line(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, class, labelWidth, y-lineHeight+3, max(width, 1), lineHeight-5)
			line(`<text x="%.1f" y="%d">%.3g</text>`, labelWidth+max(width, 1)+6, y-6, b.Value)
		}
	}
	return fmt.Sprintf("<!-- Copyright The Lanyard Authors.\n     SPDX-License-Identifier: Apache-2.0 -->\n"+
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n<style>%s</style>\n%s</svg>\n",
		plotWidth, y+lineHeight/2, html.EscapeString(p.Title), style, lines.String())
}
