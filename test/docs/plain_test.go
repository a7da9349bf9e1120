// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	markdown "github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
)

var list = flag.String("list", "", `list the sentences that are not plain in a file or directory of the repository; "." for all`)

// plainLimits are the largest shares of sentences that are not plain, in
// percent. controller-runtime, pod security admission and kubectl have 0.5 to 0.8.
var plainLimits = map[string]float64{
	inProduct:  2,
	inTests:    2,
	inPages:    2,
	inMessages: 2,
}

// The groups of sentences, each with a limit of its own.
const (
	inProduct  = "Go comments of cmd, internal and pkg"
	inTests    = "Go comments of test"
	inPages    = "documentation"
	inMessages = "help and messages"
)

// one is a pronoun, unlike that in "one of the keys".
const one = `(the|a|an|another|first|second|last|new|old|usual|own) ones?`

// notPlain are idioms that spare a noun, so that the reader must look back for it.
var notPlain = []struct {
	name    string
	pattern *regexp.Regexp
}{
	{"a pronoun for a noun", regexp.MustCompile(`(?i)\b(that|those|` + one + `) (of|from|for|with|without)\b`)},
	{"a clause for a noun", regexp.MustCompile(`(?i)\bwhat\b[^?]*$`)},
	{"is no or is none", regexp.MustCompile(`(?i)\b(is|are) (no|none)\b`)},
	{"a text that says", regexp.MustCompile(`(?i)\bsa(y|ys|id)\b`)},
	{"another one", regexp.MustCompile(`(?i)\b(another one|(the )?other ones?)\b`)},
	{"alone", regexp.MustCompile(`(?i)\balone\b`)},
}

// ordinary is left out before the search: nothing is missing in "there is no CA".
var ordinary = regexp.MustCompile(`(?i)\bthere (is|are) no\b`)

// sentence is a sentence of a file, with the line in which it starts.
type sentence struct {
	file string
	line int
	text string
}

// idioms returns the names of the idioms in the sentence.
func (s sentence) idioms() []string {
	var found []string
	text := ordinary.ReplaceAllString(s.text, "")
	for _, idiom := range notPlain {
		if idiom.pattern.MatchString(text) {
			found = append(found, idiom.name)
		}
	}
	return found
}

// endOfPart also ends a sentence at a colon and at an empty line.
var endOfPart = regexp.MustCompile(`[.!?:]["')]*\s+|\n\s*\n`)

// sentencesOf splits a text that starts in the given line.
func sentencesOf(file string, line int, text string) []sentence {
	var found []sentence
	start := 0
	add := func(end int) {
		part := text[start:end]
		trimmed := strings.TrimLeft(part, " \t\n")
		if words := strings.Fields(trimmed); len(words) > 0 {
			first := line + strings.Count(text[:end-len(trimmed)], "\n")
			found = append(found, sentence{file: file, line: first, text: strings.Join(words, " ")})
		}
		start = end
	}
	for _, end := range endOfPart.FindAllStringIndex(text, -1) {
		add(end[1])
	}
	add(len(text))
	return found
}

// goSentences returns the sentences of comments and string literals in the Go
// files of the repository, without unit tests, by group.
func goSentences(t *testing.T) map[string][]sentence {
	t.Helper()
	found := map[string][]sentence{}
	for _, name := range files(t) {
		top, _, _ := strings.Cut(name, "/")
		code := slices.Contains([]string{"cmd", "internal", "pkg", "test"}, top)
		if !code || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, readFile(t, name), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		group := inProduct
		if top == "test" {
			group = inTests
		} else {
			found[inMessages] = append(found[inMessages], messages(name, positions, file)...)
		}
		for _, comment := range file.Comments {
			if text := commentText(comment); !strings.HasPrefix(text, "Copyright The ") {
				found[group] = append(found[group], sentencesOf(name, positions.Position(comment.Pos()).Line, text)...)
			}
		}
	}
	return found
}

// commentText is like Text of the comment, but keeps the number of lines before
// each word. Lines for tools, such as //go:build, are empty.
func commentText(comments *ast.CommentGroup) string {
	var lines []string
	for _, comment := range comments.List {
		text := strings.TrimPrefix(comment.Text, "//")
		if text != comment.Text && text != "" && text[0] != ' ' {
			text = ""
		}
		lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(text, "/*"), "*/"))
	}
	return strings.TrimPrefix(strings.Join(lines, "\n"), " ")
}

// prose matches string literals that are texts for people.
var prose = regexp.MustCompile(`(?i)[a-z]+,? [a-z]+,? [a-z]+`)

// messages returns the sentences of the string literals of a file: help texts,
// errors, warnings and events.
func messages(name string, positions *token.FileSet, file *ast.File) []sentence {
	var found []sentence
	ast.Inspect(file, func(node ast.Node) bool {
		if _, ok := node.(*ast.ImportSpec); ok {
			return false
		}
		text, ok := literal(node)
		if ok && prose.MatchString(text) {
			found = append(found, sentencesOf(name, positions.Position(node.Pos()).Line, text)...)
		}
		return !ok
	})
	return found
}

// literal returns the value of a string literal, or of several with a + between.
func literal(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(n.Value)
		return text, err == nil && n.Kind == token.STRING
	case *ast.BinaryExpr:
		left, isLeft := literal(n.X)
		right, isRight := literal(n.Y)
		return left + right, isLeft && isRight && n.Op == token.ADD
	}
	return "", false
}

// blocksOfText calls visit with each paragraph, heading, list item and cell of a
// page, and with its first line.
func blocksOfText(p *page, visit func(line int, text string)) {
	code := "`code`"
	_ = markdown.Walk(p.tree, func(node markdown.Node, entering bool) (markdown.WalkStatus, error) {
		if !entering {
			return markdown.WalkContinue, nil
		}
		switch node.(type) {
		case *markdown.Paragraph, *markdown.TextBlock, *markdown.Heading, *extast.TableCell:
			line := 1
			if texts := nodes[*markdown.Text](node); len(texts) > 0 {
				line += bytes.Count(p.source[:texts[0].Segment.Start], []byte("\n"))
			}
			visit(line, textOf(node, p.source, &code))
			return markdown.WalkSkipChildren, nil
		}
		return markdown.WalkContinue, nil
	})
}

// minPageWords leaves out most headings and cells of tables.
const minPageWords = 5

// pageSentences returns the sentences of all Markdown files of the repository.
func pageSentences(t *testing.T) []sentence {
	t.Helper()
	var found []sentence
	all := pages(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		blocksOfText(all[name], func(line int, text string) {
			found = append(found, sentencesOf(name, line, text)...)
		})
	}
	return slices.DeleteFunc(found, func(s sentence) bool { return len(strings.Fields(s.text)) < minPageWords })
}

// TestPlainEnglish limits the share of sentences in which the reader must look
// for the noun. To list them:
//
//	go test -run TestPlainEnglish -v -args -list internal/migrate
func TestPlainEnglish(t *testing.T) {
	groups := goSentences(t)
	groups[inPages] = pageSentences(t)
	for group, limit := range plainLimits {
		t.Run(group, func(t *testing.T) {
			all := groups[group]
			if len(all) < 500 {
				t.Fatalf("got %d sentences, want at least 500", len(all))
			}
			var marked []string
			for _, s := range all {
				if idioms := s.idioms(); len(idioms) > 0 {
					marked = append(marked, fmt.Sprintf("%s:%d: %s: %s", s.file, s.line, strings.Join(idioms, ", "), s.text))
				}
			}
			listMarked(marked)
			share := 100 * float64(len(marked)) / float64(len(all))
			t.Logf("%d of %d sentences are not plain: %.1f %%", len(marked), len(all), share)
			if share > limit {
				t.Errorf("got %.2f %%, want at most %g %%:\n%s", share, limit, strings.Join(marked, "\n"))
			}
		})
	}
}

// listMarked prints the marked sentences that --list asks for.
func listMarked(marked []string) {
	if *list == "" {
		return
	}
	prefix := strings.TrimLeft(path.Clean(*list), "./")
	count := 0
	for _, line := range marked {
		if strings.HasPrefix(line, prefix) {
			fmt.Println(line)
			count++
		}
	}
	fmt.Printf("%s: %d sentences\n", *list, count)
}

func TestIdiomsThatAreNotPlain(t *testing.T) {
	tests := map[string]int{
		"It returns that of the container.":             1,
		"Those with a token are denied.":                1,
		"It is the one for AWS.":                        1,
		"It must have one of these names.":              0,
		"So that it works for all of those pods.":       0,
		"What is injected is in the annotation.":        1,
		"It reports what it has.":                       1,
		"What does Lanyard inject?":                     0,
		"It is nil if there is none.":                   1,
		"This is no error.":                             1,
		"There is no CA.":                               0,
		"This is not an error.":                         0,
		"The error says so.":                            1,
		"It opens another one.":                         1,
		"It opens another connection.":                  0,
		"It is decided by the key alone.":               1,
		"It returns that of what the other ones alone.": 4,
	}
	for text, want := range tests {
		if got := (sentence{text: text}).idioms(); len(got) != want {
			t.Errorf("%s: got %q, want %d idioms", text, got, want)
		}
	}
}

func TestSentencesHaveTheirLines(t *testing.T) {
	got := sentencesOf("f", 10, "One\ntwo. Three:\n four\n\nFive! \"Six?\" Seven")
	want := []sentence{
		{"f", 10, "One two."}, {"f", 11, "Three:"}, {"f", 12, "four"},
		{"f", 14, "Five!"}, {"f", 14, `"Six?"`}, {"f", 14, "Seven"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
