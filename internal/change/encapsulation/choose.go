package encapsulation

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/pool"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// carriage is a value of --encapsulation: what an IPPool says, and how packets go then.
type carriage struct {
	mode string
	way  step.Way
}

var carriages = map[string]carriage{
	"none":               {"Never", step.WayBGP},
	"vxlan":              {"Always", step.WayTunnel},
	"vxlan-cross-subnet": {"CrossSubnet", step.WayCross},
}

const (
	// vxlanLink is the interface of Calico's tunnel.
	vxlanLink = "vxlan.calico"
	// annotationTunnel is where Calico keeps the address of a node's tunnel.
	annotationTunnel = "projectcalico.org/IPv4VXLANTunnelAddr"
	// tunnelReservation names the IPReservation of addresses that tunnels had.
	tunnelReservation = "theseus-tunnels"
)

// propose plans another way between the nodes for the network in place, or returns a *kind.Refusal.
func propose(r *kind.Request) (*kind.Draft, error) {
	snapshot, change := r.Snapshot, r.Change
	source, err := kind.ReadyOn("calico", snapshot, change, r.Drivers, "--encapsulation is for clusters on Calico")
	if err != nil {
		return nil, err
	}
	held, err := pool.OfPods(snapshot)
	if err != nil {
		return nil, err
	}
	to := &kind.Encapsulation{Pool: held.GetName(), Ranges: []string{pool.Text(held, "cidr")}, To: change.Encapsulation}
	if to.From, err = encapsulationOf(held); err != nil {
		return nil, err
	}
	if err := changeable(snapshot, source, held, to); err != nil {
		return nil, err
	}
	waves, err := kind.CountedWaves(snapshot, change)
	if err != nil {
		return nil, err
	}
	source.PodCIDRs = to.Ranges
	target := *encapsulated(snapshot, change, r.Drivers)
	target.PodCIDRs = to.Ranges
	setup := setupOf(snapshot, held, to)
	in := joint.Input{Snapshot: snapshot, Source: source, Target: &cni.Target{Installation: target},
		Change: change, Waves: waves}
	p := kind.Begin(snapshot, change, r.Options, Name,
		"pinned routes send packets directly between nodes until every node has the network's new routes")
	p.Source, p.Target, p.Waves, p.Findings = *source, target, kind.WavesOf(waves), r.Findings
	p.Encapsulation, p.Steps = to, Steps(in, setup)
	return &kind.Draft{Plan: p, Stem: "encapsulation", Pods: nil}, nil
}

// encapsulated is the network in place as it will be with another encapsulation; nil where that is not known.
func encapsulated(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry) *cni.Installation {
	held, err := pool.OfPods(snapshot)
	if _, known := carriages[change.Encapsulation]; err != nil || !known {
		return nil
	}
	for _, found := range drivers.Detect(withPool(snapshot, held, change.Encapsulation)) {
		if found.CNI == "calico" {
			return found
		}
	}
	return nil
}

// withPool is a snapshot whose pool says something else.
func withPool(snapshot *cluster.Snapshot, held *unstructured.Unstructured, to string) *cluster.Snapshot {
	then := *snapshot
	then.Other = slices.Clone(then.Other)
	ref := step.RefOf(held)
	kind.Rehearse(&then, &step.Action{Do: step.Patch{Ref: ref, Merge: modePatch(carriages[to].mode)}})
	return &then
}

func modePatch(mode any) []byte {
	return joint.Canonical(map[string]any{"spec": map[string]any{"vxlanMode": mode}})
}

// encapsulationOf is what a pool says, in the words of --encapsulation.
func encapsulationOf(held *unstructured.Unstructured) (string, error) {
	if mode := pool.Text(held, "ipipMode"); mode != "" && mode != "Never" {
		return "", kind.Refuse(cni.FromIPIP("ippools."+held.GroupVersionKind().Group, shell.Word(held.GetName())),
			"IPPool %s encapsulates by IPIP, and a change from or to IPIP was never run", held.GetName())
	}
	mode := cmp.Or(pool.Text(held, "vxlanMode"), "Never")
	for name, c := range carriages {
		if c.mode == mode {
			return name, nil
		}
	}
	return "", kind.Refuse("kubectl get "+shell.Words("ippools."+held.GroupVersionKind().Group, held.GetName())+
		" -o yaml", "IPPool %s has the unknown vxlanMode %q", held.GetName(), mode)
}

// changeable refuses what would not come to an end, or not without a loss.
func changeable(snapshot *cluster.Snapshot, source *cni.Installation, held *unstructured.Unstructured,
	to *kind.Encapsulation) error {
	if _, known := carriages[to.To]; !known {
		hint := "use none, vxlan or vxlan-cross-subnet"
		if strings.HasPrefix(strings.ToLower(to.To), "ipip") {
			return kind.Refuse(hint, "a change to IPIP was never run")
		}
		return kind.Refuse(hint, "--encapsulation %q is not known", to.To)
	}
	if to.To == to.From {
		return kind.Refuse("no change is needed", "IPPool %s already has %s", to.Pool, to.To)
	}
	if err := pool.NotOperators(snapshot, source, held); err != nil {
		return err
	}
	fleet := setting.Read(snapshot, nil)
	for _, hinders := range []struct{ name, value, hint, message string }{
		{"wireguardEnabled", "true", "turn it off first, in a separate change",
			"WireGuard encrypts packets between nodes, and the pinned routes would bypass it"},
		{"bpfEnabled", "true", "this cluster cannot be changed by this version",
			"the eBPF data plane routes between nodes itself, and bypasses the pinned routes"},
		{"vxlanEnabled", "false", "remove it: the IPPools decide about the tunnel",
			"Felix makes no tunnel here, whatever the IPPools say"},
	} {
		if hinders.name == "vxlanEnabled" && to.To == "none" {
			continue
		}
		k, known := fleet.Catalogue().Get("calico/" + hinders.name)
		for _, node := range fleet.Nodes() {
			if known && fleet.Value(k, node).Value == hinders.value {
				return kind.Refuse(hinders.hint, "%s (%s=%s on %s)", hinders.message, hinders.name, hinders.value, node)
			}
		}
	}
	if to.To == "none" {
		return routable(snapshot, held, to)
	}
	return nil
}

// routable refuses to go without encapsulation where BIRD would not carry the routes, or what lies between the nodes
// not the packets.
func routable(snapshot *cluster.Snapshot, held *unstructured.Unstructured, to *kind.Encapsulation) error {
	in := bgp.FromSnapshot(withPool(snapshot, held, to.To))
	hidden, _, _ := unstructured.NestedBool(held.Object, "spec", "disableBGPExport")
	switch {
	case in.Unknown != "":
		return kind.Refuse("give this user the permission to read it", "Theseus cannot tell whether BGP would "+
			"distribute the routes: %s",
			in.Unknown)
	case !in.Started():
		return kind.Refuse("start BIRD first: calico_backend: bird in the ConfigMap calico-config, -bird-live and "+
			"-bird-ready in the probes of calico-node, whose pods then start again (kubectl -n kube-system rollout "+
			"restart daemonset/calico-node); or --encapsulation vxlan-cross-subnet, which needs no BIRD",
			"without encapsulation, BIRD makes the routes between nodes, but BIRD does not run here "+
				"(CALICO_NETWORKING_BACKEND=%s)", in.Backend)
	case hidden:
		return kind.Refuse("remove disableBGPExport",
			"BGP would have to distribute the routes of IPPool %s, but disableBGPExport forbids that", to.Pool)
	}
	graph := bgp.Build(in, false)
	if graph == nil {
		return kind.Refuse("let nodes peer with a few reflectors instead of with each other",
			"the BGPPeers make more than %d peerings", bgp.MaxPeerings)
	}
	if missing := graph.Routes().Missing(); missing > 0 {
		return kind.Refuse("theseus check --only bgp says why",
			"%d pairs of nodes would have no route to each other by BGP", missing)
	}
	from, other, err := twoSubnets(snapshot)
	if err != nil {
		return err
	}
	if from != "" {
		return kind.Refuse("--encapsulation vxlan-cross-subnet keeps the tunnel only between subnets",
			"node %s is in another subnet than %s: the routers between them would need routes to the pods' "+
				"addresses, and "+
				"Theseus cannot check that", other, from)
	}
	return nil
}

// twoSubnets names two nodes that are not in one subnet, as Calico reckons; empty where there are none.
func twoSubnets(snapshot *cluster.Snapshot) (from, other string, err error) {
	texts := map[string]string{}
	for _, object := range snapshot.Calico("Node") {
		texts[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "bgp", "ipv4Address")
	}
	var subnets []netip.Prefix
	for i := range snapshot.Nodes {
		n := &snapshot.Nodes[i]
		subnet, err := netip.ParsePrefix(cmp.Or(n.Annotations[bgp.AnnotationAddress], texts[n.Name]))
		if err != nil || !subnet.Addr().Is4() {
			return "", "", kind.Refuse("start calico-node on the node, then take the snapshot again: calico-node "+
				"writes the annotation "+bgp.AnnotationAddress, "the subnet of node %s is not known", n.Name)
		}
		subnets = append(subnets, subnet)
	}
	for i, subnet := range subnets {
		if first := subnets[0]; !first.Masked().Contains(subnet.Addr()) || !subnet.Masked().Contains(first.Addr()) {
			return snapshot.Nodes[0].Name, snapshot.Nodes[i].Name, nil
		}
	}
	return "", "", nil
}

func setupOf(snapshot *cluster.Snapshot, held *unstructured.Unstructured, to *kind.Encapsulation) Setup {
	setup := Setup{
		Pool: step.RefOf(held), From: to.From, To: to.To,
		Set: modePatch(carriages[to.To].mode), Restore: modePatch(held.Object["spec"].(map[string]any)["vxlanMode"]),
		Old: carriages[to.From].way, New: carriages[to.To].way,
		Pin: step.PinArgs{Within: to.Ranges, Tunnel: []string{vxlanLink}, Far: step.FarLeave},
	}
	switch "none" {
	case to.From: // whatever the routers between nodes carry, they do already
		setup.Pin.Far = step.FarRoute
	case to.To:
		setup.Pin.Far = step.FarRefuse
		if setup.Reserve = reserving(snapshot, held); setup.Reserve != nil {
			to.Reserves = setup.Reserve.GetName()
		}
	}
	return setup
}

// reserving keeps the addresses of tunnels that end, and of such as ended before; nil where no node has one.
func reserving(snapshot *cluster.Snapshot, held *unstructured.Unstructured) *unstructured.Unstructured {
	addresses := map[string]bool{}
	for _, object := range snapshot.Calico("IPReservation") {
		if object.GetName() == tunnelReservation {
			former, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "reservedCIDRs")
			for _, cidr := range former {
				addresses[cidr] = true
			}
		}
	}
	for i := range snapshot.Nodes {
		if address, err := netip.ParseAddr(snapshot.Nodes[i].Annotations[annotationTunnel]); err == nil &&
			address.Is4() {
			addresses[address.String()+"/32"] = true
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	cidrs := make([]any, 0, len(addresses))
	for _, cidr := range slices.Sorted(maps.Keys(addresses)) {
		cidrs = append(cidrs, cidr)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": held.GetAPIVersion(), "kind": "IPReservation",
		"metadata": map[string]any{"name": tunnelReservation}, "spec": map[string]any{"reservedCIDRs": cidrs},
	}}
}
