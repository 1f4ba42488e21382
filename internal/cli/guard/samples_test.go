package guard

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestSamplePolicies: a number of connections that cannot be sampled is refused before anything is asked; a dry run
// lists the pairs, and a kind that is missing is told.
func TestSamplePolicies(t *testing.T) {
	for number, code := range map[int]int{-1: exit.Usage, 0: 0, step.MostPairs: 0, step.MostPairs + 1: exit.Usage} {
		var out bytes.Buffer
		o := &options{baseline: time.Second, quiet: time.Second, atMost: time.Minute, pairs: number}
		if got := exit.Code(&out, o.times()); got != code ||
			(code != 0) != strings.Contains(out.String(), "hint: give 0 to 50") {
			t.Errorf("%d: exit %d: %s", number, got, out.String())
		}
	}
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{Out: io.Discard, Err: &out}}
	(&options{dry: true}).sampled(a, &plan.Plan{Guarded: &kind.Guard{Pairs: []step.Pair{{
		From: step.Pod{Namespace: "x", Name: "a"}, To: step.Pod{Namespace: "x", Name: "b"}, Port: 80}}}})
	if text := out.String(); text != "sampled: x/a to x/b, TCP 80: allowed by policy\n"+
		"note: no connection between Ready pods that is denied by policy was found to sample\n" {
		t.Error(text)
	}
	out.Reset()
	(&options{}).sampled(a, &plan.Plan{Guarded: &kind.Guard{Unevaluated: []string{"AdminNetworkPolicy/a: x"}}})
	if text := out.String(); text != "note: no connection is sampled about which this may decide: "+
		"AdminNetworkPolicy/a: x\n" {
		t.Error(text)
	}
	out.Reset()
	if (&options{dry: true}).sampled(a, &plan.Plan{Guarded: &kind.Guard{}}); out.Len() > 0 {
		t.Error(out.String())
	}
}
