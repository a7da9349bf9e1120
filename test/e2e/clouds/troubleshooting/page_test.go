// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package troubleshooting

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// pagePath is the tested page.
const pagePath = "../../../../docs/troubleshooting.md"

// columns is the header of the table of cloud errors.
const columns = "| Cloud | The SDK prints | Cause | See it with | Fix |"

// errorRow is a row of the table of cloud errors.
type errorRow struct {
	line  int
	cloud string
	// code and message are what the SDK prints. The message is empty if the code
	// is enough. "…" in it stands for any text.
	code, message string
	cause         string
	// command shows the cause.
	command, fix string
	// tests name the causes in the comment of the first cell.
	tests []string
}

var (
	// mark is the comment that claims that a row is tested.
	mark = regexp.MustCompile(`<!-- tested: (.+?) -->`)
	// printed matches the second cell: the code, the message, and remarks.
	printed = regexp.MustCompile("^`([^`]+)`(?:: `([^`]+)`)?")
)

// readErrors returns the rows of the table of cloud errors.
func readErrors(t *testing.T) []errorRow {
	t.Helper()
	var rows []errorRow
	inTable := false
	for n, line := range strings.Split(readPage(t), "\n") {
		switch {
		case line == columns:
			if len(rows) > 0 {
				t.Fatalf("line %d: got a second table of cloud errors, want one", n+1)
			}
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && !strings.HasPrefix(line, "|---"):
			row, err := parseError(line)
			if err != nil {
				t.Fatalf("line %d: %v", n+1, err)
			}
			row.line = n + 1
			rows = append(rows, row)
		}
	}
	return rows
}

func parseError(line string) (errorRow, error) {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	if len(cells) != strings.Count(columns, "|")-1 {
		return errorRow{}, fmt.Errorf("got %d cells, want those of %s", len(cells), columns)
	}
	for i := range cells {
		if cells[i] = strings.TrimSpace(cells[i]); cells[i] == "" {
			return errorRow{}, fmt.Errorf("got no text in cell %d, want some", i+1)
		}
	}
	row := errorRow{cloud: strings.TrimSpace(mark.ReplaceAllString(cells[0], "")), cause: cells[2], command: cells[3], fix: cells[4]}
	if claim := mark.FindStringSubmatch(cells[0]); claim != nil {
		row.tests = strings.Split(claim[1], "; ")
	}
	parts := printed.FindStringSubmatch(cells[1])
	if parts == nil {
		return errorRow{}, fmt.Errorf("got %q in the second cell, want it to begin with `CODE` or `CODE`: `MESSAGE`", cells[1])
	}
	row.code, row.message = parts[1], parts[2]
	return row, nil
}

// describes reports whether the row is about the answer.
func (r *errorRow) describes(cloud string, got answer) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(r.message), "…", ".*")
	return r.cloud == cloud && r.code == got.code && regexp.MustCompile(pattern).MatchString(got.message)
}

// names reports whether the row claims that the cause is tested.
func (r *errorRow) names(cloud, cause string) bool {
	return r.cloud == cloud && slices.Contains(r.tests, cause)
}

func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryRowHasACommand(t *testing.T) {
	t.Parallel()
	programs := []string{"aws", "az", "gcloud", "kubectl", "curl", "date", "lanyard"}
	rows := readErrors(t)
	if len(rows) < 20 {
		t.Errorf("got %d rows, want 20 or more", len(rows))
	}
	for _, row := range rows {
		command, _, _ := strings.Cut(strings.TrimPrefix(row.command, "`"), " ")
		isStep := strings.HasPrefix(row.command, "[step ")
		if !isStep && !slices.Contains(programs, command) {
			t.Errorf("line %d: got %q, want a step of the list or a command of %v", row.line, row.command, programs)
		}
		if _, known := clouds[row.cloud]; !known {
			t.Errorf("line %d: got cloud %q", row.line, row.cloud)
		}
	}
}
