// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/lanyard-dev/lanyard/internal/options"
)

// flags lists the flags of the program by the groups of --help.
func flags() (string, error) {
	var b strings.Builder
	groups := options.New().Flags()
	for _, name := range groups.Order {
		b.WriteString("\n### " + name + "\n\n" + flagTable(groups.FlagSets[name]))
	}
	return b.String() + "\n", nil
}

// flagTable lists flags, each with its default after a "=".
func flagTable(fs *pflag.FlagSet) string {
	t := newTable("Flag", "Description")
	fs.VisitAll(func(flag *pflag.Flag) {
		name := "--" + flag.Name
		if flag.Shorthand == flag.Name {
			name = "-" + flag.Name
		}
		if flag.DefValue != "" && flag.DefValue != "[]" {
			name += "=" + strings.Trim(flag.DefValue, "[]")
		}
		t.row(code(name), escape(flag.Usage))
	})
	return t.String()
}

// escape returns text for a cell of a table.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(text)
}
