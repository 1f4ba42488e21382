package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/step"
)

// whole also checks BGP before it returns a verdict: it waits for missing sessions, and fails immediately if the
// cluster's objects no longer produce the required routes. It adds these problems to an earlier failure.
func (g *Gate) whole(ctx context.Context, want step.Sessions, reports []v1alpha1.ProbeReport,
	verdict *loss.Verdict) error {
	objects, err := g.Actor.BGPObjects(ctx)
	if err != nil {
		return err
	}
	lacking, final := incomplete(bgp.FromSnapshot(objects), want, reports)
	switch {
	case lacking == "":
	case verdict.Pass:
		verdict.Pass, verdict.Waiting, verdict.Reason = false, !final, lacking
	default:
		verdict.Reason += "; " + lacking
	}
	return nil
}

// incomplete returns what BGP lacks on the nodes that report, and whether waiting does not help; empty if BGP is
// complete.
func incomplete(in *bgp.Input, want step.Sessions, reports []v1alpha1.ProbeReport) (lacking string, final bool) {
	in.Backend = "bird" // the backend at planning time; whatever it is now, a missing session is a failure
	seen := map[string]bgp.Seen{}
	for _, report := range reports {
		if len(report.Status.Paths) > 0 { // other nodes measure nothing
			seen[report.Name] = bgp.Reported(report.Status.BGP)
		}
	}
	unreached, pairs := 0, 0
	var lacks []string
	for _, six := range []bool{false, true} {
		g := bgp.Build(in, six)
		if g == nil {
			return "the BGPPeers make more peerings than Theseus can model", true
		}
		if len(g.Speakers()) < 2 {
			continue
		}
		routes := g.Routes()
		unreached, pairs = unreached+routes.Missing(), pairs+routes.Pairs()
		for _, lack := range g.Compare(in, seen) {
			lacks = append(lacks, lack.Node+" "+words(lack))
		}
	}
	lacks = slices.Compact(lacks)
	if n := len(lacks); n > 0 {
		lacking = fmt.Sprintf("BGP sessions or routes are missing on %s: %s", cluster.Count(n, "node"),
			strings.Join(lacks[:min(n, 3)], "; "))
	}
	if unreached > want.Unreached {
		lacking = strings.TrimSuffix(fmt.Sprintf("by labels and BGPPeers as they are now, %d of %d pairs of nodes "+
			"have no route to each other (%d when the plan was made): theseus check --only bgp says why; %s",
			unreached, pairs, want.Unreached, lacking), "; ")
		return lacking, true
	}
	return lacking, false
}

// words describes what a node lacks.
func words(lack bgp.Lack) string {
	switch {
	case lack.Seen.Down != "":
		return "says: " + lack.Seen.Down
	case lack.Up == 0:
		return fmt.Sprintf("has no session that is up, and %s from BIRD", cluster.Count(lack.Seen.Routes, "route"))
	case len(lack.Missing) > 0:
		return "has no session with " + strings.Join(lack.Missing[:min(len(lack.Missing), 3)], ", ")
	}
	return fmt.Sprintf("has %s from BIRD of at least %d", cluster.Count(lack.Seen.Routes, "route"), lack.Owed)
}

// BGPObjects reads only the objects that determine the BGP graph of a cluster with Calico.
func (a *Actor) BGPObjects(ctx context.Context) (*cluster.Snapshot, error) {
	s := &cluster.Snapshot{}
	nodes, err := a.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; n.DeletionTimestamp == nil {
			maps.DeleteFunc(n.Annotations, func(key, _ string) bool {
				return !strings.HasPrefix(key, bgp.AnnotationPrefix)
			})
			s.Nodes = append(s.Nodes,
				corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations},
					Status: corev1.NodeStatus{Addresses: n.Status.Addresses}})
		}
	}
	for _, kind := range bgp.Kinds {
		mapping, err := a.mapping(kind)
		if err != nil {
			return nil, err
		}
		list, err := a.Dynamic.Resource(mapping.Resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
		s.Other = append(s.Other, list.Items...)
	}
	return s, nil
}

// mapping finds one of Calico's kinds in either of Calico's API groups.
func (a *Actor) mapping(kind string) (*meta.RESTMapping, error) {
	var errs []error
	for _, gv := range bgp.Versions {
		mapping, err := a.Mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version)
		if err == nil {
			return mapping, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
