package reflectors

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// relay collects what a change of reflectors is made of.
type relay struct {
	snapshot *cluster.Snapshot
	in       *bgp.Input
	to       *kind.Reflectors
	api      string // of Calico's objects
	peer     *unstructured.Unstructured
	old      []unstructured.Unstructured // BGPPeers between nodes that go
}

// propose plans other route reflectors for the network in place, or returns a *kind.Refusal.
func propose(request *kind.Request) (*kind.Draft, error) {
	snapshot, change := request.Snapshot, request.Change
	if len(change.Waves)+len(change.WavePercents) > 0 {
		return nil, kind.Refuse("leave --waves out", "reflectors change for all nodes together")
	}
	source, err := kind.ReadyOn("calico", snapshot, change, request.Drivers,
		"--reflectors is for clusters whose Calico runs BGP")
	if err != nil {
		return nil, err
	}
	r := &relay{snapshot: snapshot, in: bgp.FromSnapshot(snapshot), to: &kind.Reflectors{Selector: change.Reflectors}}
	if err := r.read(); err != nil {
		return nil, err
	}
	if err := r.pick(change.Reflectors); err != nil {
		return nil, err
	}
	parts := r.parts()
	if err := r.rehearse(parts); err != nil {
		return nil, err
	}
	waves, err := joint.Waves(snapshot, []int{0}, "")
	if err != nil {
		return nil, err
	}
	in := joint.Input{Snapshot: snapshot, Source: source, Target: &cni.Target{Installation: *source},
		Change: change, Waves: waves}
	p := kind.Begin(snapshot, change, request.Options, Name,
		"every node retains its routes while BGP sessions change, until BIRD has installed all of them again")
	p.Source, p.Target, p.Waves, p.Findings = *source, *source, kind.WavesOf(waves), request.Findings
	p.Reflectors, p.Steps = r.to, Steps(in, r.to.Ranges, parts)
	return &kind.Draft{Plan: p, Stem: "reflectors", Pods: nil}, nil
}

// read takes what there is, and refuses what cannot be carried through.
func (r *relay) read() error {
	switch {
	case r.in.Unknown != "":
		return kind.Refuse("give this user the permission to read it", "Theseus cannot tell whether BGP "+
			"distributes the "+
			"routes: %s",
			r.in.Unknown)
	case !r.in.Started():
		return kind.Refuse("there is nothing to reflect", "BIRD does not run here")
	case r.in.Guessed || len(r.snapshot.Calico("Node")) > 0:
		return kind.Refuse(
			"if Kubernetes is Calico's datastore, start calico-node, which writes "+bgp.AnnotationAddress+
				" on Nodes; in etcd only calicoctl changes them",
			"the BGP settings of the nodes are not in Kubernetes' Nodes, where Theseus would change them")
	case r.in.Speaks(true):
		return kind.Refuse("change them by hand, and check with: theseus check --only bgp",
			"IPv6 routes, which cannot be retained yet")
	}
	r.to.Ranges = r.in.Carried()
	if len(r.to.Ranges) == 0 {
		return kind.Refuse("there is nothing to reflect", "BIRD distributes the routes of no IPPool here")
	}
	for _, kind := range []string{"IPPool", "BGPConfiguration", "BGPPeer"} {
		for _, object := range r.snapshot.Calico(kind) {
			r.api = cmp.Or(r.api, object.GetAPIVersion())
		}
	}
	nodes := map[netip.Addr]string{}
	for _, n := range r.in.Nodes {
		nodes[n.IPv4] = n.Name
	}
	r.to.Before = r.in.Reflecting()
	for i, peer := range r.in.Peers {
		if name := nodes[peer.IP]; name != "" && peer.IP.IsValid() {
			return kind.Refuse("use a peerSelector in it, or delete it",
				"BGPPeer %s names the node %s by its address", peer.Name, name)
		}
		if peer.PeerSelector != nil || peer.Bad["peerSelector"] != nil {
			r.old = append(r.old, r.snapshot.Calico("BGPPeer")[i])
		}
	}
	return nil
}

// pick finds the nodes that will reflect.
func (r *relay) pick(text string) error {
	if text == kind.FullMesh {
		if r.in.Mesh && len(r.to.Before)+len(r.old) == 0 {
			return kind.Refuse("no change is needed", "the nodes already form a full mesh")
		}
		return nil
	}
	chosen, err := selector.Parse(text)
	if err != nil {
		return kind.Refuse("use Calico's syntax for selectors, such as has(route-reflector)",
			"--reflectors %q: %v", text, err)
	}
	for _, n := range r.in.Nodes {
		if chosen.Matches(n.Labels) {
			r.to.After = append(r.to.After, n.Name)
		}
	}
	slices.Sort(r.to.After)
	switch len(r.to.After) {
	case 0, len(r.in.Nodes):
		return kind.Refuse("select fewer nodes; kubectl get nodes --show-labels shows their labels",
			"%q selects %d of %d nodes", text, len(r.to.After), len(r.in.Nodes))
	case 1:
		return kind.Refuse("select two nodes or more", "%q selects only %s: if that node fails, all others lose each "+
			"other's routes",
			text, r.to.After[0])
	}
	r.peer = r.object("BGPPeer", "reflectors-"+hashed(text),
		map[string]any{"nodeSelector": "all()", "peerSelector": text})
	r.old = slices.DeleteFunc(r.old, func(o unstructured.Unstructured) bool { return o.GetName() == r.peer.GetName() })
	if slices.Equal(r.to.Before, r.to.After) && len(r.old) == 0 && !r.in.Mesh {
		return kind.Refuse("no change is needed", "these nodes are already the reflectors")
	}
	return nil
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:3])
}

func (r *relay) object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": r.api, "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": spec}}
}

// parts are what is done, in an order in which every node has its new sessions before it loses the old ones.
func (r *relay) parts() []Part {
	var parts []Part
	if r.peer != nil {
		actions := []step.Action{joint.Apply(*r.peer)}
		for _, name := range r.to.After {
			if !slices.Contains(r.to.Before, name) {
				actions = append(actions, clusterID(name, r.freeID(), "make "+name+" a route reflector"))
			}
		}
		parts = append(parts, Part{ID: "new", Title: "Make " + joint.List(r.to.After) + " route reflectors",
			Why:   "Every node gets BGP sessions with them, in addition to its present sessions.",
			Proof: "every node has its BGP sessions with the new reflectors", Actions: actions})
	}
	if r.in.Mesh != (r.peer == nil) {
		parts = append(parts, r.mesh(r.peer == nil))
	}
	var actions []step.Action
	for _, name := range r.to.Before {
		if !slices.Contains(r.to.After, name) {
			actions = append(actions, clusterID(name, nil, "stop "+name+" from reflecting routes"))
		}
	}
	for i := range r.old {
		actions = append(actions, joint.Remove(step.RefOf(&r.old[i])))
	}
	if len(actions) > 0 {
		parts = append(parts, Part{ID: "old", Title: "Remove the former route reflectors",
			Why:   "Every node has its other BGP sessions by now.",
			Proof: "every node has its remaining BGP sessions", Actions: actions})
	}
	return parts
}

// mesh turns the full mesh on or off.
func (r *relay) mesh(on bool) Part {
	part := Part{ID: "mesh", Title: "Turn off the full mesh", Why: "The reflectors distribute all routes.",
		Proof: "the reflectors alone distribute all routes"}
	if on {
		part = Part{ID: "mesh", Title: "Turn on the full mesh",
			Why:   "Route reflectors take no part in the mesh, so all present sessions stay.",
			Proof: "every node has its BGP sessions of the mesh"}
	}
	spec := map[string]any{"nodeToNodeMeshEnabled": on}
	action := joint.Apply(*r.object("BGPConfiguration", "default", spec))
	for _, object := range r.snapshot.Calico("BGPConfiguration") {
		if object.GetName() == "default" {
			ref := step.RefOf(&object)
			action = step.Action{Do: step.Patch{Ref: ref, Merge: joint.Canonical(map[string]any{"spec": spec})}}
		}
	}
	action.Title = fmt.Sprintf("set nodeToNodeMeshEnabled=%t", on)
	part.Actions = []step.Action{action}
	return part
}

// clusterID gives a node a cluster id, or takes it where id is nil.
func clusterID(node string, id any, title string) step.Action {
	return step.Action{
		Do: step.Patch{Ref: step.Ref{APIVersion: "v1", Kind: "Node", Name: node}, Merge: joint.Canonical(
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{bgp.AnnotationClusterID: id}}})},
		Title: title,
	}
}

// freeID is the first cluster id that no node has. All new reflectors have the same clients, and so one id.
func (r *relay) freeID() string {
	for i := 1; ; i++ {
		id := fmt.Sprintf("244.0.%d.%d", i>>8&255, i&255)
		if !slices.ContainsFunc(r.in.Nodes, func(n bgp.Node) bool { return n.ClusterID == id }) {
			return id
		}
	}
}

// rehearse holds the graph after each part to what there is now: a gate would wait for routes that never come.
func (r *relay) rehearse(parts []Part) error {
	now := bgp.Build(r.in, false)
	if now == nil {
		return kind.Refuse("let nodes peer with a few reflectors instead of with each other",
			"the BGPPeers make more than %d peerings", bgp.MaxPeerings)
	}
	then := *r.snapshot
	then.Nodes, then.Other = slices.Clone(then.Nodes), slices.Clone(then.Other)
	for _, part := range parts {
		for i := range part.Actions {
			kind.Rehearse(&then, &part.Actions[i])
		}
		graph := bgp.Build(bgp.FromSnapshot(&then), false)
		if graph == nil {
			return kind.Refuse("pick fewer reflectors", "the reflectors make more than %d peerings",
				bgp.MaxPeerings)
		}
		if missing := graph.Routes().Missing(); missing > now.Routes().Missing() {
			return kind.Refuse("theseus check -o svg draws the sessions",
				"after the step %q, %d pairs of nodes would have no route to each other", part.Title, missing)
		}
	}
	return nil
}
