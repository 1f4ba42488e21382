package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
)

// TestSignals: signals are part of a plan: in its hash, in its runbook, in what it reaches; and what is no signal is
// refused.
func TestSignals(t *testing.T) {
	r := carried(t, "Always", "none")
	bare := mustMake(t, r)
	r.change.SLO = []string{"http://prometheus:9090 sum(rate(errors[1m])) < 0.01", "command: /opt/check.sh a 'b c'"}
	p := mustMake(t, r)
	if p.Hash == bare.Hash || p.Name != bare.Name {
		t.Errorf("%s %s, without signals %s %s", p.Name, p.Hash, bare.Name, bare.Hash)
	}
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(data); err != nil || again.Hash != p.Hash ||
		!slices.Equal(again.Change.SLO, r.change.SLO) {
		t.Errorf("read again: %v", err)
	}
	if _, err := plan.Read([]byte(strings.ReplaceAll(string(data), "< 0.01", "< 0.99"))); err == nil {
		t.Error("an edited signal is accepted")
	}
	book := plan.Runbook(p)
	for _, want := range []string{"\nSignals that every gate also asks, from the machine that runs the plan; a " +
		"signal without an answer fails:\n" +
		"  sum(rate(errors[1m])) must be < 0.01, asked at http://prometheus:9090\n" +
		"  the command /opt/check.sh a 'b c' must end with exit code 0\n", "; and every signal holds\n"} {
		if !strings.Contains(book, want) || !strings.Contains(plan.Summary(p)+"; and every signal holds\n", want) ||
			strings.Contains(plan.Runbook(bare), want) {
			t.Errorf("no %q in the runbook:\n%s", want, book)
		}
	}
	if gates := strings.Count(book, "   Gate: "); gates != strings.Count(book, "; and every signal holds\n") ||
		gates == 0 {
		t.Errorf("%d gates, and not each asks the signals", gates)
	}
	reach := plan.ReachOf(p)
	if !slices.Contains(reach.Commands, "/opt/check.sh a 'b c'") ||
		!slices.Contains(reach.Uses, "http://prometheus:9090 (the gates ask it, without credentials)") {
		t.Errorf("%+v", reach)
	}
	for _, text := range []string{"sum(errors) < 1", "http://u:p@prometheus a < 1", "", "command: ./check.sh"} {
		r.change.SLO = []string{text}
		_, err := plan.Make(r.snapshot, r.change, drivers(), nil, plan.Options{Now: r.options.Now})
		var refused *kind.Refusal
		if !errors.As(err, &refused) || refused.Hint == "" {
			t.Errorf("%q: %v", text, err)
		}
		p.Change.SLO = r.change.SLO
		if err := plan.Verify(p); err == nil {
			t.Errorf("%q is verified", text)
		}
	}
}
