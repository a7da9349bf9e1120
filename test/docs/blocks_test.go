// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// block is a fenced code block.
type block struct {
	language, text string
	// notRun is what the commands need, if a comment before the block says that
	// they were not run.
	notRun string
}

// notRun is the comment before a block whose commands were not run, because the machines that
// test Lanyard lack a requirement.
var notRun = regexp.MustCompile(`^<!-- not run: needs (.+) -->\s*$`)

// blocksOf returns the fenced code blocks of a page.
func blocksOf(p *page) []block {
	var blocks []block
	for _, fence := range nodes[*ast.FencedCodeBlock](p.tree) {
		b := block{language: string(fence.Language(p.source)), text: linesOf(fence, p.source)}
		if comment, ok := fence.PreviousSibling().(*ast.HTMLBlock); ok {
			if match := notRun.FindStringSubmatch(htmlOf(comment, p.source)); match != nil {
				b.notRun = match[1]
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// linesOf returns the raw lines of a block.
func linesOf(node ast.Node, source []byte) string {
	var b strings.Builder
	for i := range node.Lines().Len() {
		segment := node.Lines().At(i)
		b.Write(segment.Value(source))
	}
	return b.String()
}

// htmlOf returns an HTML block, with its last line.
func htmlOf(node *ast.HTMLBlock, source []byte) string {
	text := linesOf(node, source)
	if node.HasClosure() {
		text += string(node.ClosureLine.Value(source))
	}
	return text
}

// elsewhere matches commands of programs that need a cloud or a platform that the tests
// do not have.
var elsewhere = regexp.MustCompile(`(?m)(?:^|[|;(&]|\b(?:sudo|xargs|do|then))\s*(aws|az|gcloud|gsutil|bq|eksctl|vault|bao|terraform|tofu|argocd|flux|oc|rosa|ccoctl|talosctl|kops|k3s|rke2|kubeadm|systemctl|ssh|scp|(?:docker|podman) push|git clone)\s`)

func isShell(b block) bool {
	return slices.Contains([]string{"sh", "bash", "shell", "console"}, b.language)
}

// Readers must be able to tell which commands were run before the page was published:
// all without the comment.
func TestCommandsThatWereNotRunAreMarked(t *testing.T) {
	needs := map[string]int{}
	shells, marked := 0, 0
	for name, p := range pages(t) {
		comments := 0
		for _, html := range nodes[*ast.HTMLBlock](p.tree) {
			comments += strings.Count(htmlOf(html, p.source), "<!-- not run")
		}
		for _, b := range blocksOf(p) {
			if b.notRun != "" {
				comments--
				marked++
				needs[b.notRun]++
			}
			if !isShell(b) {
				continue
			}
			shells++
			if match := elsewhere.FindStringSubmatch(b.text); match != nil && b.notRun == "" {
				t.Errorf("%s: a block runs %s; want the comment <!-- not run: needs ... --> on the line before it:\n%s", name, match[1], b.text)
			}
		}
		if comments != 0 {
			t.Errorf("%s: got %d comments <!-- not run: ... --> that are not directly before a code block, or not of the form <!-- not run: needs X -->", name, comments)
		}
	}
	if shells < 30 {
		t.Errorf("got %d blocks of commands, want the blocks of all pages", shells)
	}
	t.Logf("%d blocks of commands; %d blocks of all languages are marked as not run, because they need:", shells, marked)
	for _, need := range slices.Sorted(maps.Keys(needs)) {
		t.Logf("%4d  %s", needs[need], need)
	}
}

func TestThePatternFindsCommandsOfClouds(t *testing.T) {
	for text, want := range map[string]bool{
		"aws sts get-caller-identity":                  true,
		"ACCOUNT=$(aws sts get-caller-identity)":       true,
		"kubectl get pods | gcloud storage cp - gs://": true,
		"  az aks show \\":                             true,
		"git clone https://example.com/a && cd a":      true,
		"kubectl annotate sa a aws-role=b":             false,
		"echo aws":                                     false,
		"helm install flux-system .":                   false,
		"kubectl create --image=amazon/aws-cli":        false,
	} {
		if got := elsewhere.MatchString(text); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
}
