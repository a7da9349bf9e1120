// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/internal/finding"
)

// statusStyles are the styles of the statuses.
var statusStyles = map[finding.Status]string{
	finding.OK: Good, finding.Warning: Warn, finding.Failed: Bad, finding.Skipped: Unknown, finding.NotApplicable: Faint,
}

// Finding prints the mark of the status, the finding, and its next step on the lines below. A next
// step is not wrapped, so that users can paste its command.
func (p *Page) Finding(f *finding.Finding) {
	p.Marked(statusStyles[f.Status], f.Text)
	fix, commands, _ := strings.Cut(f.Fix, "\n")
	if fix != "" {
		p.Line("    %s", fix)
	}
	if f.Link != "" {
		p.Line("    %s", p.Style(Faint, f.Link))
	}
	p.Lines(commands) // not indented, because the end of a here-document must not be
}

// Findings writes findings below the parts that they are about. Findings about the same part
// must be adjacent.
func (p *Page) Findings(findings []finding.Finding) {
	for i := range findings {
		if i == 0 || findings[i].About != findings[i-1].About {
			p.Line("%s", p.Style(Title, findings[i].About))
		}
		p.Finding(&findings[i])
		if i == len(findings)-1 || findings[i].About != findings[i+1].About {
			p.Line("")
		}
	}
}

// Summary writes the line at the end of findings.
func (p *Page) Summary(s finding.Summary) {
	style, summary := Good, "no check failed"
	failed, skipped, warnings := s[finding.Failed], s[finding.Skipped], s[finding.Warning]
	switch {
	case failed > 0:
		style, summary = Bad, fmt.Sprintf("failed: %d", failed)
	case skipped > 0:
		style, summary = Unknown, "no check failed, but not all could run"
	case warnings > 0:
		style = Warn
	}
	if skipped > 0 {
		summary += fmt.Sprintf(", skipped: %d", skipped)
	}
	if failed+skipped+warnings > 0 {
		summary += fmt.Sprintf(", warnings: %d", warnings)
	}
	p.Text(0, style, summary)
}
