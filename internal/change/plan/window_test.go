package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestWindows: a change is cut into windows at its stopping places, each as full as it can be, and the file keeps them.
func TestWindows(t *testing.T) {
	for _, name := range []string{"flannel-to-calico", "flannel-to-calico-adopt", "weave-to-calico-adopt",
		"flannel-to-calico-surge", "calico-to-flannel"} {
		t.Run(name, func(t *testing.T) {
			whole := mustMake(t, wide(t, name))
			window := max(step.Duration(shortest(t, name)), whole.Estimate/3)
			p := within(t, name, time.Duration(window))
			legs := p.Legs()
			if len(legs) < 2 || len(p.Steps) != len(whole.Steps)+len(legs)-1 {
				t.Fatalf("%d windows, %d steps of %d", len(legs), len(p.Steps), len(whole.Steps))
			}
			places := whole.Estimate - p.Estimate
			for i, leg := range legs {
				places += p.Steps[leg.From].Estimate * step.Duration(min(i, 1))
				if leg.Takes > window || p.Takes(&p.Steps[leg.From]) != time.Duration(leg.Takes) {
					t.Errorf("window %d takes %s of %s", i+1, time.Duration(leg.Takes), time.Duration(window))
				}
			}
			if places != 0 {
				t.Errorf("the plan takes %s, and without windows %s",
					time.Duration(p.Estimate), time.Duration(whole.Estimate))
			}
			text, err := plan.Write(p)
			if err != nil {
				t.Fatal(err)
			}
			again, err := plan.Read(text)
			if err != nil || again.Hash != p.Hash || len(again.Legs()) != len(legs) || p.Hash == whole.Hash {
				t.Errorf("read again: %v", err)
			}
		})
	}
}

func within(t testing.TB, name string, window time.Duration) *plan.Plan {
	r := wide(t, name)
	r.options.Window = step.Duration(window)
	return mustMake(t, r)
}

// shortest is the window that a refusal of a window of one second names.
func shortest(t testing.TB, name string) time.Duration {
	t.Helper()
	r := wide(t, name)
	r.options.Window = step.Duration(time.Second)
	_, err := r.make()
	refused, ok := errors.AsType[*kind.Refusal](err)
	if !ok || !strings.Contains(refused.Message, "a window of 1s is too short: steps 1 to ") {
		t.Fatalf("a window of a second: %v", err)
	}
	_, window, _ := strings.Cut(refused.Hint, "give --window ")
	window, _, _ = strings.Cut(window, " ")
	d, err := time.ParseDuration(window)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestWindowTooShort: the window that the refusal names does, and one that is a little shorter does not.
func TestWindowTooShort(t *testing.T) {
	d := shortest(t, "flannel-to-calico-adopt")
	within(t, "flannel-to-calico-adopt", d)
	r := wide(t, "flannel-to-calico-adopt")
	r.options.Window = step.Duration(d * 9 / 10)
	if _, err := r.make(); err == nil || !strings.Contains(err.Error(), "is too short") {
		t.Errorf("a window of %s: %v", d*9/10, err)
	}
}

// TestWindowWithoutStops: a change of a kind without stopping places fits into one window, or is refused.
func TestWindowWithoutStops(t *testing.T) {
	for _, name := range []string{"calico-upgrade", "calico-to-nftables", "calico-to-pool", "calico-encapsulation"} {
		r := wide(t, name)
		r.options.Window = step.Duration(24 * time.Hour)
		p := mustMake(t, r)
		if !strings.Contains(plan.Runbook(p), "Windows: the change fits into one of 24h.\n") || len(p.Legs()) != 1 {
			t.Errorf("%s: %d windows", name, len(p.Legs()))
		}
		r = wide(t, name)
		r.options.Window = p.Estimate - 1
		_, err := r.make()
		if refused, ok := errors.AsType[*kind.Refusal](err); !ok ||
			!strings.Contains(refused.Message, "strategy "+p.Strategy) || refused.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStops: no node is half way where a run may be left, and no plan whose network goes has a place after that.
func TestStops(t *testing.T) {
	for name, r := range map[string]*request{
		"7, 10, 12, 14": flannelToCalico(t), "9, 13, 16, 19, 20": adoption(t), "8, 14, 15": flat(t),
		"8, 12, 15, 16": bridged(t), "7, 11, 12, 13, 16, 17, 18, 20": surging(t),
	} {
		p := mustMake(t, r)
		if text := plan.Runbook(p); !strings.Contains(text, "\nStopping places: after steps "+name+". ") {
			t.Errorf("%s: not after %s", p.Name, name)
		}
	}
}

// TestWindowRules: the verifier accepts a stop at a stopping place alone, with a whole check after it.
func TestWindowRules(t *testing.T) {
	whole := mustMake(t, adoption(t))
	r := adoption(t)
	r.options.Window = step.Duration(2 * time.Minute)
	p := mustMake(t, r)
	at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.Stop })
	if at < 0 || at >= len(whole.Steps) {
		t.Fatal("no stop")
	}
	for want, change := range map[string]func(p *plan.Plan, s *step.Step){
		"must not be left for hours": func(p *plan.Plan, _ *step.Step) {
			stop := p.Steps[at]
			p.Steps = slices.Delete(p.Steps, at, at+1)
			half := slices.IndexFunc(p.Steps, func(s step.Step) bool { return strings.HasSuffix(s.ID, "/canary") })
			p.Steps = slices.Insert(p.Steps, half+1, stop)
			p.Window *= 10
		},
		"the plan has no windows":      func(p *plan.Plan, _ *step.Step) { p.Window = 0 },
		"longer than a window":         func(p *plan.Plan, _ *step.Step) { p.Window /= 2 },
		"but no gate checks":           func(_ *plan.Plan, s *step.Step) { s.Gate = nil },
		"does not check whether nodes": func(_ *plan.Plan, s *step.Step) { s.Before = nil },
		"not known before it": func(_ *plan.Plan, s *step.Step) {
			s.Before[0].Is = step.NodesAmong{Nodes: s.Before[0].Is.(step.NodesAmong).Nodes[1:]}
		},
		"does not check DaemonSet":         func(_ *plan.Plan, s *step.Step) { s.After = s.After[:1] },
		"does more than check the cluster": func(_ *plan.Plan, s *step.Step) { s.Alone = false },
	} {
		mutant := *p
		mutant.Steps = slices.Clone(p.Steps)
		s := &mutant.Steps[at]
		s.Before = slices.Clone(s.Before)
		change(&mutant, s)
		if err := plan.Verify(&mutant); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	steps := slices.Clone(p.Steps)
	p.Steps = slices.Delete(steps, at, at+1)
	if err := plan.Verify(p); err == nil || !strings.Contains(err.Error(), "longer than a window") {
		t.Errorf("without the stop: %v", err)
	}
}

// TestWindowRunbook: the runbook says what is done in each window, and what a run checks before it continues.
func TestWindowRunbook(t *testing.T) {
	text := plan.Runbook(within(t, "flannel-to-calico-adopt", 10*time.Minute))
	head, _, _ := strings.Cut(text, "\nWaves")
	_, head, _ = strings.Cut(head, "\nWindows")
	_, chapter, _ := strings.Cut(text, "\n== Window 2 ==")
	chapter, _, _ = strings.Cut(chapter, "\n==")
	golden(t, "window-runbook.txt", fmt.Appendf(nil, "Windows%s\n== Window 2 ==%s", head, chapter))
}
