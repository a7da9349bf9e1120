// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"strings"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// Table returns the table of a peer in Markdown, for the documentation.
func (p *Peer) Table() string {
	var out strings.Builder
	out.WriteString("| Where | What | Result | Becomes | Notes |\n|---|---|---|---|---|\n")
	for i := range p.Inputs {
		in := &p.Inputs[i]
		key, becomes := in.Key, in.Becomes
		if in.Place != ByProgram {
			key = "`" + key + "`"
		}
		if becomes != "" && !strings.HasPrefix(becomes, "config.") {
			becomes = annotations.DefaultPrefix + becomes
		}
		if becomes != "" {
			becomes = "`" + becomes + "`"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s |\n", in.Place, key, in.Result, becomes, in.Note)
	}
	return out.String()
}
