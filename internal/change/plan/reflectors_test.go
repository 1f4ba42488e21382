package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// relayed is a request for five nodes without encapsulation, two of which have the label rr, and two others the label
// old.
func relayed(t *testing.T, text string) *request {
	r := peering(t, text)
	addNodes(r, "second", "third", "fourth", "fifth")
	marked(r)
	return r
}

// peering asks one node whose routes BIRD carries for other reflectors.
func peering(t testing.TB, text string) *request {
	r := unencapsulated(withBackend(toNFTables(t), "bird"))
	r.change.Dataplane, r.change.Reflectors = "", text
	return r
}

// unencapsulated turns VXLAN off in all pools.
func unencapsulated(r *request) *request {
	for i := range r.snapshot.Other {
		if o := &r.snapshot.Other[i]; o.GetKind() == "IPPool" {
			_ = unstructured.SetNestedField(o.Object, "Never", "spec", "vxlanMode")
		}
	}
	return r
}

// marked gives each node an address for BGP, and a label: the first two old, the next two rr, and all others none.
func marked(r *request) {
	for i := range r.snapshot.Nodes {
		n := &r.snapshot.Nodes[i]
		n.Annotations = map[string]string{"projectcalico.org/IPv4Address": fmt.Sprintf("10.0.%d.%d/16", i/200, i%200+1)}
		n.Labels = maps.Clone(n.Labels)
		n.Labels[[]string{"old", "old", "rr", "rr", "none"}[min(i, 4)]] = ""
	}
}

// reflecting marks the nodes, gives those with the label old a cluster id, and all nodes sessions with them alone.
func reflecting(r *request) {
	marked(r)
	for i := range 2 {
		r.snapshot.Nodes[i].Annotations["projectcalico.org/RouteReflectorClusterID"] = "244.0.0.1"
	}
	add := func(kind, name string, spec map[string]any) {
		r.snapshot.Other = append(r.snapshot.Other,
			unstructured.Unstructured{Object: map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": kind,
				"metadata": map[string]any{"name": name}, "spec": spec}})
	}
	add("BGPConfiguration", "default", map[string]any{"nodeToNodeMeshEnabled": false, "asNumber": int64(64600)})
	add("BGPPeer", "to-old", map[string]any{"nodeSelector": "all()", "peerSelector": "has(old)"})
	add("BGPPeer", "router", map[string]any{"peerIP": "198.18.9.9", "asNumber": int64(64999)})
}

// reflected is that request where the nodes with the label old reflect routes.
func reflected(t *testing.T, text string) *request {
	r := relayed(t, text)
	reflecting(r)
	return r
}

// said are the titles of what a plan does to BGP, step by step.
func said(p *plan.Plan) string {
	var lines []string
	for _, s := range p.Steps {
		if !strings.HasPrefix(s.ID, "bgp/") {
			continue
		}
		titles := []string{s.ID + ":"}
		for _, a := range s.Actions {
			titles = append(titles, a.Title)
		}
		lines = append(lines, strings.Join(titles, " | "))
	}
	return strings.Join(lines, "\n")
}

func TestReflectors(t *testing.T) {
	for name, c := range map[string]struct {
		request *request
		want    []string // in this order
		not     string
	}{
		"from a mesh": {relayed(t, "has(rr)"), []string{"bgp/retain:", "bgp/new: | create BGPPeer reflectors-",
			"make fourth a route reflector", "make third a route reflector",
			"bgp/mesh: | set nodeToNodeMeshEnabled=false", "bgp/let-go:"}, "bgp/old"},
		"to other nodes": {reflected(t, "has(rr)"), []string{"bgp/retain:", "bgp/new:", "make fourth a route reflector",
			"bgp/old:", "from reflecting routes", "stop second from reflecting routes",
			"delete BGPPeer to-old", "bgp/let-go:"}, "bgp/mesh"},
		"some stay": {reflected(t, "has(rr) || kubernetes.io/hostname == 'x' || has(old)"), []string{"bgp/new:",
			"make fourth a route reflector", "bgp/old: | delete BGPPeer to-old"}, "from reflecting"},
		"back to a mesh": {reflected(t, kind.FullMesh),
			[]string{"bgp/retain:", "bgp/mesh: | set nodeToNodeMeshEnabled=true",
				"bgp/old:", "from reflecting routes", "delete BGPPeer to-old", "bgp/let-go:"}, "bgp/new"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, c.request)
			text := said(p)
			rest := text
			for _, want := range c.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("%q does not come then:\n%s", want, text)
				}
				rest = after
			}
			if strings.Contains(text, c.not) || strings.Contains(text, "router") {
				t.Errorf("%q, or the router's, is in:\n%s", c.not, text)
			}
			for _, s := range p.Steps {
				if strings.HasPrefix(s.ID, "bgp/") && (s.Gate == nil || s.Gate.Sessions == nil) {
					t.Errorf("no gate holds the sessions after %s", s.ID)
				}
			}
			data, err := plan.Write(p)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := plan.Read(data); err != nil || again.Hash != p.Hash {
				t.Errorf("%v", err)
			}
			if book := plan.Runbook(p); !strings.Contains(book, "BGP of Calico: from ") ||
				!strings.Contains(book, "Pods keep running") {
				t.Errorf("the runbook:\n%s", book)
			}
		})
	}
}

// TestReflectorsCannotDoWithout: no plan does without retaining on every node, without letting go, or without its
// gates.
func TestReflectorsCannotDoWithout(t *testing.T) {
	p := mustMake(t, reflected(t, "has(rr)"))
	for i, s := range p.Steps {
		if s.ID == "bgp/retain" || s.ID == "bgp/let-go" {
			for j := range s.Actions {
				steps := slices.Clone(p.Steps)
				steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
				if plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("%s without %q passes", s.ID, s.Actions[j].Title)
				}
				steps = slices.Clone(p.Steps)
				steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
				if plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("the undo of %s without %q passes", s.ID, s.Undo[j].Title)
				}
			}
		}
		if strings.HasPrefix(s.ID, "bgp/") {
			steps := slices.Clone(p.Steps)
			steps[i].Gate = nil
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("%s without its gate passes", s.ID)
			}
		}
	}
	foreign := slices.Clone(p.Steps)
	foreign[3].Actions = append(slices.Clone(foreign[3].Actions),
		step.Action{ID: "x", Do: step.Delete{Ref: step.Ref{Kind: "IPPool", Name: "default"}}})
	if plan.Verify(mutant(p, foreign)) == nil {
		t.Error("a plan that deletes a pool passes")
	}
}

func TestReflectorsRefused(t *testing.T) {
	with := func(r *request, edit func(*request)) *request { edit(r); return r }
	for want, r := range map[string]*request{
		"selects 0 of 5 nodes":     relayed(t, "has(nobody)"),
		"selects 5 of 5 nodes":     relayed(t, "all()"),
		"selects only fifth":       relayed(t, "has(none)"),
		"column":                   relayed(t, "has("),
		"already form a full mesh": relayed(t, kind.FullMesh),
		"a plan makes one change":  with(relayed(t, "has(rr)"), func(r *request) { r.change.Dataplane = "nftables" }),
		"for all nodes together":   with(relayed(t, "has(rr)"), func(r *request) { r.change.Waves = []int{1, 0} }),
		"no image of the agent":    with(relayed(t, "has(rr)"), func(r *request) { r.change.AgentImage = "" }),
		"BIRD does not run": with(relayed(t, "has(rr)"), func(r *request) {
			r.snapshot.ConfigMaps[0].Data["calico_backend"] = "vxlan"
		}),
		"names the node third": with(reflected(t, "has(rr)"), func(r *request) {
			_ = unstructured.SetNestedField(last(r), "10.0.0.3", "spec", "peerIP")
		}),
		"cannot be retained yet": with(relayed(t, "has(rr)"), func(r *request) {
			r.snapshot.Nodes[0].Annotations["projectcalico.org/IPv6Address"] = "fd00::1/64"
		}),
		"are not in Kubernetes' Nodes": with(relayed(t, "has(rr)"), func(r *request) {
			for i := range r.snapshot.Nodes {
				r.snapshot.Nodes[i].Annotations = nil
			}
		}),
	} {
		if _, err := r.make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func last(r *request) map[string]any { return r.snapshot.Other[len(r.snapshot.Other)-1].Object }
