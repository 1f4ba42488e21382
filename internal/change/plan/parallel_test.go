package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
)

// inZones gives the nodes of a request zones, in turn.
func inZones(r *request, label string, zones ...string) *request {
	for i := range r.snapshot.Nodes {
		labels := map[string]string{label: zones[i%len(zones)]}
		for key, value := range r.snapshot.Nodes[i].Labels {
			labels[key] = value
		}
		r.snapshot.Nodes[i].Labels = labels
	}
	return r
}

// wide is a change for 120 nodes: six at once.
func wide(t testing.TB, name string) *request {
	for _, change := range scaled {
		if change.name == name {
			return change.on(t, 120, 3)
		}
	}
	t.Fatalf("no change %s", name)
	return nil
}

// moving are the changes that move pods or restart agents of several nodes at once.
var moving = []string{"flannel-to-calico", "flannel-to-calico-adopt", "weave-to-calico-adopt",
	"flannel-to-calico-surge", "calico-to-pool", "calico-to-flannel"}

// TestParallelRule: a plan for many nodes changes more nodes at once than a small one, and is held to its bound and to
// its failure domains.
func TestParallelRule(t *testing.T) {
	for _, name := range moving {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, inZones(wide(t, name), "topology.kubernetes.io/zone", "a", "b"))
			if p.Parallel.Nodes != 6 || len(p.Parallel.Domains) != 2 {
				t.Fatalf("parallel %+v", p.Parallel)
			}
			if worst := p.Parallel.Worst(); worst.Nodes != 6 || worst.Pods != 18 {
				t.Errorf("at risk: %+v", worst)
			}
			refused := func(want string, change func(kind.Parallel) kind.Parallel) {
				t.Helper()
				mutant := *p
				mutant.Parallel = change(p.Parallel)
				if err := plan.Verify(&mutant); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("verify: %v, want %q", err, want)
				}
			}
			refused("6 nodes at once, of at most 5", func(p kind.Parallel) kind.Parallel { p.Nodes = 5; return p })
			refused("6 nodes at once, of at most 4", func(kind.Parallel) kind.Parallel { return kind.Parallel{} })
			refused("lets 65 nodes", func(p kind.Parallel) kind.Parallel { p.Nodes = 65; return p })
			refused("lets -1 nodes", func(p kind.Parallel) kind.Parallel { p.Nodes = -1; return p })
			refused("different failure domains", func(p kind.Parallel) kind.Parallel {
				a := p.Domains["a"]
				p.Domains = map[string][]string{"a": a[:len(a)/2], "c": a[len(a)/2:], "b": p.Domains["b"]}
				return p
			})
		})
	}
}

// TestParallelBound: the user's bound is that of the plan, and the plan's file keeps it.
func TestParallelBound(t *testing.T) {
	r := wide(t, "flannel-to-calico-adopt")
	r.change.MaxParallel = 3
	p := mustMake(t, r)
	if p.Parallel.Nodes != 3 || p.Parallel.Worst().Nodes != 3 {
		t.Errorf("parallel %+v", p.Parallel)
	}
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Read(text)
	if err != nil || again.Hash != p.Hash || again.Parallel.Nodes != 3 {
		t.Errorf("read again: %v", err)
	}
	if small := mustMake(t, adoption(t)); small.Parallel.Nodes != 0 {
		t.Errorf("a small cluster: %+v", small.Parallel)
	}
}

func TestParallelRefused(t *testing.T) {
	for want, change := range map[string]func(*request){
		"--max-parallel 65 is out of bounds":          func(r *request) { r.change.MaxParallel = 65 },
		"--max-parallel -1 is out of bounds":          func(r *request) { r.change.MaxParallel = -1 },
		"--domain-label rack: no node has this label": func(r *request) { r.change.DomainLabel = "rack" },
	} {
		r := adoption(t)
		change(r)
		_, err := r.make()
		if refused, ok := errors.AsType[*kind.Refusal](err); !ok || refused.Message != want || refused.Hint == "" {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestParallelRunbook: the waves of a runbook say what is changed at once.
func TestParallelRunbook(t *testing.T) {
	var parts []string
	for _, zones := range [][]string{{"a"}, {"a", "b", "c"}} {
		r := inZones(wide(t, "flannel-to-calico-adopt"), "rack", zones...)
		r.change.DomainLabel = "rack"
		text := plan.Runbook(mustMake(t, r))
		_, waves, _ := strings.Cut(text, "\nWaves")
		waves, _, _ = strings.Cut(waves, "\nWhat happens")
		parts = append(parts, fmt.Sprintf("%d racks:\nWaves%s", len(zones), waves))
	}
	golden(t, "parallel-runbook.txt", []byte(strings.Join(parts, "\n")))
}
