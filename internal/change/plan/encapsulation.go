package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/encapsulation"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// Encapsulation says how packets between nodes go before and after.
type Encapsulation struct {
	// Pool is the IPPool that says so, and Ranges those of its pods.
	Pool   string   `json:"pool"`
	Ranges []string `json:"ranges"`
	// From and To are what --encapsulation takes.
	From string `json:"from"`
	To   string `json:"to"`
	// Reserves is the IPReservation that keeps the addresses of tunnels from pods, where the tunnels end.
	Reserves string `json:"reserves,omitempty"`
}

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
	// annotationTunnel is where Calico keeps the address of a node's tunnel, and annotationAddress the node's own with its subnet.
	annotationTunnel  = "projectcalico.org/IPv4VXLANTunnelAddr"
	annotationAddress = "projectcalico.org/IPv4Address"
	// tunnelReservation names the IPReservation of addresses that tunnels had.
	tunnelReservation = "theseus-tunnels"
)

// makeEncapsulation plans another way between the nodes for the network in place, or returns a *Refusal.
func makeEncapsulation(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, findings []finding.Finding, options Options) (*Plan, error) {
	if change.To != "" || change.Strategy != "" || change.PodCIDR != "" || change.Pool != "" || change.Reflectors != "" || RollsOut(change) {
		return nil, refuse("make two plans, one after the other", "the encapsulation is changed by a plan of its own")
	}
	source, err := calicoReady(snapshot, change, drivers, "--encapsulation is for clusters on Calico")
	if err != nil {
		return nil, err
	}
	pool, err := podPool(snapshot)
	if err != nil {
		return nil, err
	}
	to := &Encapsulation{Pool: pool.GetName(), Ranges: []string{textOf(pool, "cidr")}, To: change.Encapsulation}
	if to.From, err = encapsulationOf(pool); err != nil {
		return nil, err
	}
	if err := changeable(snapshot, source, pool, to); err != nil {
		return nil, err
	}
	waves, err := countedWaves(snapshot, change)
	if err != nil {
		return nil, err
	}
	source.PodCIDRs = to.Ranges
	target := *Encapsulated(snapshot, change, drivers)
	target.PodCIDRs = to.Ranges
	setup := setupOf(snapshot, pool, to)
	in := joint.Input{Snapshot: snapshot, Source: source, Target: &cni.Target{Installation: target}, Change: change, Waves: waves}
	p := begun(snapshot, change, options, encapsulation.Name, "packets go straight to the nodes, by pins, until every node has the network's own new routes")
	p.Source, p.Target, p.Waves, p.Findings = *source, target, wavesOf(waves), findings
	p.Encapsulation, p.Steps = to, encapsulation.Steps(in, setup)
	return p.sealed(snapshot, "encapsulation", nil)
}

// Encapsulated is the network in place as it will be with another encapsulation; nil where that is not known.
func Encapsulated(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry) *cni.Installation {
	pool, err := podPool(snapshot)
	if _, known := carriages[change.Encapsulation]; err != nil || !known {
		return nil
	}
	for _, found := range drivers.Detect(withPool(snapshot, pool, change.Encapsulation)) {
		if found.CNI == "calico" {
			return found
		}
	}
	return nil
}

// withPool is a snapshot whose pool says something else.
func withPool(snapshot *cluster.Snapshot, pool *unstructured.Unstructured, to string) *cluster.Snapshot {
	then := *snapshot
	then.Other = slices.Clone(then.Other)
	ref := step.RefOf(pool)
	rehearsed(&then, &step.Action{Op: step.Patch, Ref: &ref, Patch: modePatch(carriages[to].mode)})
	return &then
}

func modePatch(mode any) []byte {
	return joint.Canonical(map[string]any{"spec": map[string]any{"vxlanMode": mode}})
}

// encapsulationOf is what a pool says, in the words of --encapsulation.
func encapsulationOf(pool *unstructured.Unstructured) (string, error) {
	if mode := textOf(pool, "ipipMode"); mode != "" && mode != "Never" {
		return "", refuse("VXLAN and none are", "IPPool %s encapsulates by IPIP, whose way from and to others was never tried", pool.GetName())
	}
	mode := cmp.Or(textOf(pool, "vxlanMode"), "Never")
	for name, c := range carriages {
		if c.mode == mode {
			return name, nil
		}
	}
	return "", refuse("kubectl get "+shell.Words("ippools."+pool.GroupVersionKind().Group, pool.GetName())+" -o yaml", "what IPPool %s says of VXLAN, %q, is not known", pool.GetName(), mode)
}

// notOperators refuses to change a pool that Calico's operator would write back.
func notOperators(snapshot *cluster.Snapshot, source *cni.Installation, pool *unstructured.Unstructured) error {
	owner := metav1.GetControllerOf(snapshot.DaemonSet(source.Agent.Namespace, source.Agent.Name))
	if owner == nil {
		owner = metav1.GetControllerOf(pool)
	}
	if owner != nil || pool.GetLabels()["app.kubernetes.io/managed-by"] == "tigera-operator" {
		return refuse("change it in its Installation: theseus does not change what an operator writes back", "IPPool %s belongs to Calico's operator", pool.GetName())
	}
	return nil
}

// changeable refuses what would not come to an end, or not without a loss.
func changeable(snapshot *cluster.Snapshot, source *cni.Installation, pool *unstructured.Unstructured, to *Encapsulation) error {
	if _, known := carriages[to.To]; !known {
		hint := "say none, vxlan or vxlan-cross-subnet"
		if strings.HasPrefix(strings.ToLower(to.To), "ipip") {
			return refuse(hint, "the way to IPIP was never tried")
		}
		return refuse(hint, "--encapsulation %q is not known", to.To)
	}
	if to.To == to.From {
		return refuse("nothing has to be done", "IPPool %s says %s already", to.Pool, to.To)
	}
	if err := notOperators(snapshot, source, pool); err != nil {
		return err
	}
	fleet := setting.Read(snapshot, nil)
	for _, hinders := range []struct{ name, value, hint, message string }{
		{"wireguardEnabled", "true", "turn it off first, as a change of its own", "packets between nodes are encrypted by WireGuard, which pins would go around"},
		{"bpfEnabled", "true", "this cluster cannot be changed by this version", "the eBPF data plane finds its own ways between nodes, past the pins"},
		{"vxlanEnabled", "false", "take it away: what the pools say is enough", "Felix has no tunnel here whatever the pools say"},
	} {
		if hinders.name == "vxlanEnabled" && to.To == "none" {
			continue
		}
		k, known := fleet.Catalogue().Get("calico/" + hinders.name)
		for _, node := range fleet.Nodes() {
			if known && fleet.Value(k, node).Value == hinders.value {
				return refuse(hinders.hint, "%s (%s=%s on %s)", hinders.message, hinders.name, hinders.value, node)
			}
		}
	}
	if to.To == "none" {
		return routable(snapshot, pool, to)
	}
	return nil
}

// routable refuses to go without encapsulation where BIRD would not carry the routes, or what lies between the nodes not the packets.
func routable(snapshot *cluster.Snapshot, pool *unstructured.Unstructured, to *Encapsulation) error {
	in := bgp.FromSnapshot(withPool(snapshot, pool, to.To))
	hidden, _, _ := unstructured.NestedBool(pool.Object, "spec", "disableBGPExport")
	switch {
	case in.Unknown != "":
		return refuse("let this user read it", "whether BGP would carry the routes here is not known: %s", in.Unknown)
	case !in.Started():
		return refuse("let it run first: calico_backend: bird in the ConfigMap calico-config, -bird-live and -bird-ready in the probes of calico-node, whose pods then start again "+
			"(kubectl -n kube-system rollout restart daemonset/calico-node); or --encapsulation vxlan-cross-subnet, which needs no BIRD",
			"without encapsulation BIRD makes the routes between nodes, and it does not run here (CALICO_NETWORKING_BACKEND=%s)", in.Backend)
	case hidden:
		return refuse("take disableBGPExport away", "IPPool %s keeps its routes from BGP (disableBGPExport), which would have to carry them", to.Pool)
	}
	graph := bgp.Build(in, false)
	if graph == nil {
		return refuse("give nodes a few reflectors as their peers, rather than one another", "the BGPPeers multiply to more than %d peerings", bgp.MaxPeerings)
	}
	if missing := graph.Routes().Missing(); missing > 0 {
		return refuse("theseus check --only bgp says why", "%d pairs of nodes would have no route to each other by BGP", missing)
	}
	from, other, err := apart(snapshot)
	if err != nil {
		return err
	}
	if from != "" {
		return refuse("--encapsulation vxlan-cross-subnet leaves the tunnel between subnets, and takes it away within them",
			"node %s is in another subnet than %s: the routers between them would have to know the pods' addresses, which nothing shows", other, from)
	}
	return nil
}

// apart names two nodes that are not in one subnet, as Calico reckons; empty where there are none.
func apart(snapshot *cluster.Snapshot) (from, other string, err error) {
	texts := map[string]string{}
	for _, object := range snapshot.Calico("Node") {
		texts[object.GetName()], _, _ = unstructured.NestedString(object.Object, "spec", "bgp", "ipv4Address")
	}
	var subnets []netip.Prefix
	for i := range snapshot.Nodes {
		n := &snapshot.Nodes[i]
		subnet, err := netip.ParsePrefix(cmp.Or(n.Annotations[annotationAddress], texts[n.Name]))
		if err != nil || !subnet.Addr().Is4() {
			return "", "", refuse("take the snapshot when calico-node runs on it: it writes the annotation "+annotationAddress,
				"in which subnet node %s is, is not known", n.Name)
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

func setupOf(snapshot *cluster.Snapshot, pool *unstructured.Unstructured, to *Encapsulation) encapsulation.Setup {
	setup := encapsulation.Setup{
		Pool: step.RefOf(pool), From: to.From, To: to.To,
		Set: modePatch(carriages[to.To].mode), Restore: modePatch(pool.Object["spec"].(map[string]any)["vxlanMode"]),
		Old: carriages[to.From].way, New: carriages[to.To].way,
		Pin: step.PinArgs{Within: to.Ranges, Tunnel: []string{vxlanLink}, Far: step.FarLeave},
	}
	switch "none" {
	case to.From: // whatever the routers between nodes carry, they do already
		setup.Pin.Far = step.FarRoute
	case to.To:
		setup.Pin.Far = step.FarRefuse
		if setup.Reserve = reserving(snapshot, pool); setup.Reserve != nil {
			to.Reserves = setup.Reserve.GetName()
		}
	}
	return setup
}

// reserving keeps the addresses of tunnels that end, and of such as ended before; nil where no node has one.
func reserving(snapshot *cluster.Snapshot, pool *unstructured.Unstructured) *unstructured.Unstructured {
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
		if address, err := netip.ParseAddr(snapshot.Nodes[i].Annotations[annotationTunnel]); err == nil && address.Is4() {
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
		"apiVersion": pool.GetAPIVersion(), "kind": "IPReservation",
		"metadata": map[string]any{"name": tunnelReservation}, "spec": map[string]any{"reservedCIDRs": cidrs},
	}}
}

// String names it.
func (e *Encapsulation) String() string { return fmt.Sprintf("%s to %s", e.From, e.To) }
