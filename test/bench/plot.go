// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// Dimensions of the plot in pixels.
const (
	plotWidth    = 960
	plotLabels   = 280 // left edge of the bars
	plotBar      = 22
	plotGap      = 6
	plotPairGap  = 14
	plotGroupGap = 46
	plotTop      = 74
	plotRight    = 110 // space for the figures after the longest bar
)

// plot draws the CPU time per request as SVG: each Lanyard case in colour with
// its ratio, and its floor in grey.
func plot(r *loadResult) string {
	var longest float64
	rows := map[loadKey]loadRow{}
	for _, row := range r.Rows {
		if row.Connections == targetConnections {
			rows[loadKey{row.Case, row.Containers, row.Connections}] = row
			longest = max(longest, row.CPU)
		}
	}
	scale := float64(plotWidth-plotLabels-plotRight) / longest
	var bars strings.Builder
	y := plotTop
	for _, containers := range loadContainers {
		fmt.Fprintf(&bars, "  <text x=\"24\" y=\"%d\" font-weight=\"600\">Pod with %d containers and an init container</text>\n", y, containers)
		y += 14
		for _, account := range loadAccounts {
			p := loadPairs[account]
			for _, name := range []string{p.floor, p.lanyard} {
				row := rows[loadKey{name, containers, targetConnections}]
				colour, figure := "#afb8c1", fmt.Sprintf("%.0f", row.CPU)
				if ratio, found := r.ratio(p, containers); found && name == p.lanyard {
					colour, figure = "#0969da", fmt.Sprintf("%.0f (%.2f×)", row.CPU, ratio.Ratio)
				}
				bar(&bars, row, y, row.CPU*scale, colour, figure)
				y += plotBar + plotGap
			}
			y += plotPairGap - plotGap
		}
		y += plotGroupGap - plotPairGap
	}
	height := y - plotGroupGap + 30
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" font-family="ui-sans-serif, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="14" fill="#1f2328" role="img" aria-label="CPU per request of Lanyard and of the floor server, as in the table below.">
  <rect width="%[1]d" height="%[2]d" fill="#ffffff"/>
  <text x="24" y="34" font-size="18" font-weight="600">CPU time of the server per request, in microseconds</text>
  <text x="%[3]d" y="34" text-anchor="end" fill="#57606a">%[4]d connections; shorter is better</text>
%[5]s</svg>
`, plotWidth, height, plotWidth-24, targetConnections, bars.String())
}

// bar draws one case and its figure.
func bar(w *strings.Builder, row loadRow, y int, length float64, colour, figure string) {
	text := y + plotBar - 6
	fmt.Fprintf(w, "  <text x=\"%d\" y=\"%d\" text-anchor=\"end\" font-size=\"13\">%s</text>\n", plotLabels-10, text, row.Case)
	fmt.Fprintf(w, "  <rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\" fill=\"%s\"/>\n", plotLabels, y, length, plotBar, colour)
	fmt.Fprintf(w, "  <text x=\"%.1f\" y=\"%d\" font-size=\"13\">%s</text>\n", plotLabels+length+8, text, figure)
}
