package bgp

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed selector_empty.md
var selectorEmptyDoc string

const selectorEmptyID = "bgp/peer-selector-empty"

// PeerSelectorEmpty reports BGPPeers whose selectors match no node.
func PeerSelectorEmpty() check.Check {
	return check.Check{
		ID:    selectorEmptyID,
		Title: "A selector of a BGPPeer matches no node",
		Doc:   selectorEmptyDoc,
		Needs: []string{"nodes"},
		Lacks: lacking("bgppeers"),
		Run:   peerSelectorEmpty,
	}
}

// picked is what one selector of a BGPPeer matches.
type picked struct {
	Field    string   `json:"field"`
	Selector string   `json:"selector"`
	Before   []string `json:"before"`
	After    []string `json:"after"`
	keys     []string
}

func peerSelectorEmpty(pass *check.Pass) []finding.Finding {
	objects := pass.Snapshot.Calico("BGPPeer")
	if len(objects) == 0 {
		return nil
	}
	g := graphsOf(pass)
	before, after := g.before, g.after
	var found []finding.Finding
	for _, object := range objects {
		at := slices.IndexFunc(before.Peers, func(p bgp.Peer) bool { return p.Name == object.GetName() })
		p := &before.Peers[at]
		found = append(found, unreadable(object, p)...)
		var lost, never []picked
		for _, field := range []string{"nodeSelector", "peerSelector", "localWorkloadSelector"} {
			one, ok := pick(before, after, p, field)
			switch {
			case !ok || len(one.After) > 0:
			case len(one.Before) > 0:
				lost = append(lost, one)
			default:
				never = append(never, one)
			}
		}
		switch {
		case len(lost) > 0:
			found = append(found, emptied(pass, object, g, lost))
		case len(never) > 0:
			found = append(found, idle(object, never))
		}
	}
	return found
}

// pick evaluates one selector of a BGPPeer on the nodes (or workloads) before and after the change.
func pick(before, after *bgp.Input, p *bgp.Peer, field string) (picked, bool) {
	var s *selector.Selector
	switch field {
	case "nodeSelector":
		s = p.NodeSelector
	case "peerSelector":
		s = p.PeerSelector
	default:
		s = p.LocalWorkload
	}
	if s == nil {
		return picked{}, false
	}
	one := picked{Field: field, Selector: s.Text(), keys: s.Keys(), Before: []string{}, After: []string{}}
	if field == "localWorkloadSelector" {
		if len(before.Workloads) == 0 {
			return picked{}, false // pods may not be in the input
		}
		for _, w := range before.Workloads {
			if s.Matches(w.Labels) {
				one.Before = append(one.Before, w.Name)
			}
		}
		one.After = one.Before
		return one, true
	}
	for i := range before.Nodes {
		if s.Matches(before.Nodes[i].Labels) {
			one.Before = append(one.Before, before.Nodes[i].Name)
		}
		if s.Matches(after.Nodes[i].Labels) {
			one.After = append(one.After, after.Nodes[i].Name)
		}
	}
	return one, true
}

func subjectOf(object unstructured.Unstructured) finding.Subject {
	return finding.Subject{Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName()}
}

// unreadable reports selectors that Calico cannot parse; in effect they match nothing.
func unreadable(object unstructured.Unstructured, p *bgp.Peer) []finding.Finding {
	var found []finding.Finding
	for _, field := range []string{"nodeSelector", "peerSelector", "localWorkloadSelector"} {
		if err := p.Bad[field]; err != nil {
			found = append(found, finding.Finding{
				ID: selectorEmptyID, Severity: finding.Block, Subject: subjectOf(object),
				Message: fmt.Sprintf("its %s cannot be parsed (%v): Calico only logs this, and makes no session",
					field, err),
				Evidence: map[string]any{"field": field},
				Fix: "correct it: kubectl edit " +
					shell.Words("bgppeers."+object.GroupVersionKind().Group, object.GetName()),
			})
		}
	}
	return found
}

// idle reports a BGPPeer that has no effect, with or without the change.
func idle(object unstructured.Unstructured, never []picked) finding.Finding {
	return finding.Finding{
		ID: selectorEmptyID, Severity: finding.Warn, Subject: subjectOf(object),
		Message: fmt.Sprintf("its %s %s matches nothing: the BGPPeer makes no session, and Calico does not report it",
			never[0].Field, never[0].Selector),
		Evidence: map[string]any{"selectors": never},
		Fix: fmt.Sprintf("if it is not needed: kubectl delete %s; otherwise compare it with the labels: "+
			"kubectl get nodes --show-labels",
			shell.Words("bgppeers."+object.GroupVersionKind().Group, object.GetName())),
	}
}

// emptied reports a BGPPeer that loses its effect by the change.
func emptied(pass *check.Pass, object unstructured.Unstructured, graphs graphs, lost []picked) finding.Finding {
	f := finding.Finding{
		ID: selectorEmptyID, Severity: finding.Warn, Subject: subjectOf(object),
		Evidence: map[string]any{"selectors": lost},
		Fix:      repairs(pass, object),
	}
	var parts, keys []string
	for _, one := range lost {
		parts = append(parts, fmt.Sprintf("its %s %s matches %s today (%s) and none %s",
			one.Field, one.Selector, cluster.Count(len(one.Before), "node"), check.Names(one.Before), afterwards(pass)))
		keys = append(keys, one.keys...)
	}
	f.Message = strings.Join(parts, "; ")
	if because := pass.WhatIf.Because(whatif.Label, keys); because != nil {
		f.Message += " (" + because.String() + ")"
		f.Evidence["because"], f.Evidence["source"] = because.String(), because.Source
	}
	if graphs.unmodelled != "" {
		f.Severity = severity(graphs.before)
		f.Message += ". Which routes are lost is unknown: " + graphs.unmodelled
	}
	for _, g := range graphs.families {
		pairs, some, all := g.loss()
		f.Evidence[g.name] = map[string]any{"sessionsBefore": g.before.Sessions(), "sessionsAfter": g.after.Sessions(),
			"pairsWithoutRoute": pairs, "nodesThatLoseAllRoutes": all, "nodesThatLoseRoutes": some,
			"reflectors": nodeNames(g.before, g.before.Reflectors())}
		if pairs > 0 {
			f.Severity = severity(graphs.before)
			f.Message += fmt.Sprintf(". Of %d BGP sessions (%s) %d remain, and %s: %s",
				g.before.Sessions(), g.name, g.after.Sessions(), whoLoses(some, all, len(g.after.Speakers())),
				meaning(graphs.before))
		}
	}
	if f.Fix == "" {
		f.Fix = "restore the labels where they are needed, or use others in the selector: kubectl edit " +
			shell.Words("bgppeers."+object.GroupVersionKind().Group, object.GetName())
	}
	return f
}

// whoLoses returns which nodes lose routes, the worst case first.
func whoLoses(some, all []string, of int) string {
	switch {
	case len(all) == of:
		return fmt.Sprintf("all %d nodes lose every route to each other's pods", of)
	case len(all) > 0:
		return fmt.Sprintf("%d of %d nodes lose every route to other nodes' pods (%s)", len(all), of, check.Names(all))
	}
	return fmt.Sprintf("%d of %d nodes lose routes to other nodes' pods (%s)", len(some), of, check.Names(some))
}
