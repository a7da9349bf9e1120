package injected

import (
	"encoding/json"
	"fmt"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

func Debug(s *annotations.Settings, sa *annotations.Object, pod []byte, unchanged bool) string {
	running, _ := Read(json.RawMessage(pod), s)
	c := comparer{s, sa, nil, pod}
	_, fresh, d, err := c.again(unchanged)
	if err != nil {
		return err.Error()
	}
	out := fmt.Sprintln(d.Reason, d.Findings, running.Providers, fresh.Providers, running.Tokens, fresh.Tokens, running.Copies, fresh.Copies)
	for c, o := range running.pairs(fresh) {
		if o == nil {
			out += "missing " + c.Name
			continue
		}
		if x := differingVariables(c, o, running.definitions(s)); len(x) > 0 || c.TakesPart != o.TakesPart || fmt.Sprint(c.injectedPaths()) != fmt.Sprint(o.injectedPaths()) {
			out += fmt.Sprintln("\n ", c.Name, x, c.TakesPart, o.TakesPart, c.injectedPaths(), o.injectedPaths())
			for _, v := range c.Variables {
				out += fmt.Sprintf("  %s=%s%s(%t,%t)", v.Name, v.Value, v.From, v.Injected, v.ambiguous)
			}
			out += "\n   "
			for _, v := range o.Variables {
				out += fmt.Sprintf("  %s=%s%s", v.Name, v.Value, v.From)
			}
		}
	}
	return out
}
