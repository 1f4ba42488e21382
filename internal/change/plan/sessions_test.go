package plan_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// onThree is a request for a cluster of three nodes in a full mesh, whose calico-node has a backend.
func onThree(t *testing.T, backend string) *request {
	r := toNFTables(t)
	addNodes(r, "second", "third")
	for i := range r.snapshot.Nodes {
		r.snapshot.Nodes[i].Annotations = map[string]string{"projectcalico.org/IPv4Address": fmt.Sprintf("10.0.0.%d/24",
			i+1)}
	}
	return withBackend(r, backend)
}

// withBackend has calico-node read from its configuration what carries routes.
func withBackend(r *request, backend string) *request {
	r.snapshot.ConfigMaps[0].Data["calico_backend"] = backend
	r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CALICO_NETWORKING_BACKEND",
		ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "calico-config"}, Key: "calico_backend"}}}}
	return r
}

// TestSessionsAreHeld: where BIRD carries routes, every gate holds it, the one before anything is changed too.
func TestSessionsAreHeld(t *testing.T) {
	for backend, held := range map[string]bool{"bird": true, "vxlan": false} {
		p := mustMake(t, onThree(t, backend))
		gates := 0
		for _, s := range p.Steps {
			if s.Gate == nil {
				continue
			}
			gates++
			if (s.Gate.Sessions != nil) != held {
				t.Errorf("%s: the gate of %s holds %+v", backend, s.ID, s.Gate.Sessions)
			}
		}
		if said := strings.Contains(plan.Runbook(p), "BIRD must have all sessions and routes"); gates == 0 ||
			said != held {
			t.Errorf("%s: %d gates, and the runbook speaks of BIRD: %v", backend, gates, said)
		}
	}
	r := onThree(t, "bird")
	r.snapshot.ConfigMaps = nil
	if _, err := plan.Make(r.snapshot, r.change, r.drivers, nil, r.options); err == nil ||
		!strings.Contains(err.Error(), "Theseus cannot tell whether BGP distributes the routes") {
		t.Errorf("nobody knows whether BIRD runs, and it is planned: %v", err)
	}
}

// TestNamesHoldNoSessions plans the way by a mirror for an original whose routes BIRD carries: gates on names are not
// about them.
func TestNamesHoldNoSessions(t *testing.T) {
	r := onThree(t, "bird")
	name := "www.example.org."
	move := zone.Move{Zone: "example.org.", Unit: zone.Unit{Name: name,
		Before: []zone.RRSet{{Name: name, Type: zone.A, TTL: 60, Values: []string{"192.0.2.1"}}},
		After:  []zone.RRSet{{Name: name, Type: zone.A, TTL: 60, Values: []string{"192.0.2.2"}}}}}
	setup := mirror.Setup{Original: "blue", Mirror: "green", Switch: mirror.Switch{Command: "true"},
		Names: shift.New([]*zone.Zone{{Name: "example.org."}}, []zone.Move{move},
			shift.Options{}, "test", r.options.Now)}
	draft, err := mirror.Propose(&kind.Request{Snapshot: r.snapshot, Change: v1alpha1.ChangeSpec{Strategy: mirror.Name},
		Drivers: r.drivers, Options: r.options}, setup, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Seal(r.snapshot, draft); err != nil {
		t.Error(err)
	}
}

// TestFindingsAreReadAsWritten: what a finding rests on may be of any type, and is read back as something more general.
func TestFindingsAreReadAsWritten(t *testing.T) {
	r := onThree(t, "bird")
	findings := []finding.Finding{{ID: "bgp/peer-selector-empty", Severity: finding.Warn, Evidence: map[string]any{
		"selectors": []struct{ Selector, Field string }{{"all()", "peerSelector"}},
		"large":     int64(1) << 60, "none": []string(nil)}}}
	p, err := plan.Make(r.snapshot, r.change, r.drivers, findings, r.options)
	if err != nil {
		t.Fatal(err)
	}
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Read(data); err != nil {
		t.Error(err)
	}
}

// TestSessionsAlreadyUnreached: what has no route when the plan is made is not held against the change.
func TestSessionsAlreadyUnreached(t *testing.T) {
	r := onThree(t, "bird")
	// leaves the mesh, and nobody peers with it
	r.snapshot.Nodes[2].Annotations["projectcalico.org/RouteReflectorClusterID"] = "244.0.0.1"
	for _, s := range mustMake(t, r).Steps {
		if s.Gate != nil && s.Gate.Sessions.Unreached != 4 {
			t.Errorf("the gate of %s: %+v", s.ID, s.Gate.Sessions)
		}
	}
}
