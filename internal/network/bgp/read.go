package bgp

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

// Kinds are the kinds of Calico's objects that FromSnapshot reads. It also reads nodes, of which it uses the
// annotations that begin with AnnotationPrefix.
var Kinds = []string{"BGPConfiguration", "BGPPeer", "IPPool", "FelixConfiguration", "BlockAffinity"}

// Versions are the API versions in which an API server may serve these kinds; the first one that it serves is used.
var Versions = []schema.GroupVersion{{Group: "crd.projectcalico.org", Version: "v1"},
	{Group: "projectcalico.org", Version: "v3"}}

// AnnotationPrefix is the prefix of Calico's annotations on nodes.
const AnnotationPrefix = "projectcalico.org/"

// The annotations in which Calico stores a node's BGP settings if Kubernetes is its datastore
// (libcalico-go/lib/backend/k8s/resources/node.go).
const (
	annotationIPv4 = "projectcalico.org/IPv4Address"
	annotationIPv6 = "projectcalico.org/IPv6Address"
	annotationAS   = "projectcalico.org/ASNumber"
	// AnnotationClusterID makes a node a route reflector.
	AnnotationClusterID = "projectcalico.org/RouteReflectorClusterID"
)

// FromSnapshot reads the BGP configuration. Like Calico, it treats invalid values as not set.
func FromSnapshot(s *cluster.Snapshot) *Input {
	in := &Input{Mesh: true, AS: DefaultAS, NodePorts: map[string]uint16{}}
	in.Backend, in.Unknown = backend(s)
	in.Nodes = readNodes(s)
	if in.Guessed = !anyAddress(in.Nodes); in.Guessed {
		guess(in.Nodes, s.Nodes)
	}
	for _, object := range s.Calico("BGPConfiguration") {
		in.configure(object)
	}
	for _, object := range s.Calico("BGPPeer") {
		in.Peers = append(in.Peers, readPeer(object))
	}
	for _, object := range s.Calico("IPPool") {
		in.Pools = append(in.Pools, readPool(object, felixRoutes(s)))
	}
	in.readBlocks(s)
	local := slices.ContainsFunc(in.Peers, func(p Peer) bool { return p.LocalWorkload != nil })
	for i := 0; local && i < len(s.Pods); i++ {
		if pod := &s.Pods[i]; pod.Spec.NodeName != "" && !pod.Spec.HostNetwork {
			in.Workloads = append(in.Workloads, Workload{pod.Namespace + "/" + pod.Name, pod.Spec.NodeName, pod.Labels})
		}
	}
	return in
}

func readNodes(s *cluster.Snapshot) []Node {
	nodes := make([]Node, 0, len(s.Nodes))
	at := map[string]int{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		node := Node{Name: n.Name, Labels: n.Labels}
		node.set(n.Annotations[annotationIPv4], n.Annotations[annotationIPv6], n.Annotations[annotationAS],
			n.Annotations[AnnotationClusterID])
		at[node.Name] = len(nodes)
		nodes = append(nodes, node)
	}
	// With etcd as its datastore, and in calicoctl's output, Calico has its own Nodes.
	for _, object := range s.Calico("Node") {
		text := func(field string) string { return scalar(object.Object, "spec", "bgp", field) }
		i, known := at[object.GetName()]
		if !known {
			i = len(nodes)
			nodes = append(nodes, Node{Name: object.GetName()})
		}
		if more := object.GetLabels(); len(more) > 0 {
			all := maps.Clone(more)
			maps.Copy(all, nodes[i].Labels)
			nodes[i].Labels = all
		}
		nodes[i].set(text("ipv4Address"), text("ipv6Address"), text("asNumber"), text("routeReflectorClusterID"))
	}
	return nodes
}

// set applies the given values and keeps the others.
func (n *Node) set(ipv4, ipv6, as, id string) {
	if ip := address(ipv4); ip.Is4() {
		n.IPv4 = ip
	}
	if ip := address(ipv6); ip.Is6() {
		n.IPv6 = ip
	}
	n.AS = cmp.Or(parseAS(as), n.AS)
	if ip, err := netip.ParseAddr(id); err == nil && ip.Is4() {
		n.ClusterID, n.BadClusterID = id, ""
	} else if id != "" {
		n.BadClusterID = id
	}
}

func anyAddress(nodes []Node) bool {
	for i := range nodes {
		if nodes[i].IPv4.IsValid() || nodes[i].IPv6.IsValid() {
			return true
		}
	}
	return false
}

// guess uses the nodes' internal addresses, which Calico usually detects.
func guess(nodes []Node, from []corev1.Node) {
	for i := range from {
		for _, a := range from[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				nodes[i].set(a.Address, a.Address, "", "")
			}
		}
	}
}

func (in *Input) configure(object unstructured.Unstructured) {
	port, _ := strconv.ParseUint(scalar(object.Object, "spec", "listenPort"), 10, 16)
	node, own := strings.CutPrefix(object.GetName(), "node.")
	switch {
	case own && port != 0:
		in.NodePorts[node] = uint16(port)
	case object.GetName() == "default":
		in.Port = uint16(port)
		in.AS = cmp.Or(parseAS(scalar(object.Object, "spec", "asNumber")), DefaultAS)
		if enabled, ok, _ := unstructured.NestedBool(object.Object, "spec", "nodeToNodeMeshEnabled"); ok {
			in.Mesh = enabled
		}
	}
}

func readPeer(object unstructured.Unstructured) Peer {
	text := func(field string) string { return scalar(object.Object, "spec", field) }
	p := Peer{Name: object.GetName(), Node: text("node"), AS: parseAS(text("asNumber")),
		LocalAS: parseAS(text("localASNumber")), ManualReverse: text("reversePeering") == "Manual",
		Bad: map[string]error{}}
	own, _ := strconv.Atoi(text("numAllowedLocalASNumbers"))
	p.AllowOwnAS = own > 0
	for field, target := range map[string]**selector.Selector{
		"nodeSelector": &p.NodeSelector, "peerSelector": &p.PeerSelector, "localWorkloadSelector": &p.LocalWorkload,
	} {
		if text(field) == "" {
			continue
		}
		parsed, err := selector.Parse(text(field))
		if err != nil {
			p.Bad[field] = err
			continue
		}
		*target = parsed
	}
	if with, err := netip.ParseAddrPort(text("peerIP")); err == nil {
		p.IP, p.Port = with.Addr(), with.Port()
	} else if ip, err := netip.ParseAddr(text("peerIP")); err == nil {
		p.IP = ip
	}
	return p
}

// readBlocks reads the affinities of nodes to blocks of pools whose routes BIRD programs.
func (in *Input) readBlocks(s *cluster.Snapshot) {
	for _, object := range s.Calico("BGPPeer") {
		if filters, _, _ := unstructured.NestedSlice(object.Object, "spec", "filters"); len(filters) > 0 {
			return
		}
	}
	for _, object := range s.Calico("BlockAffinity") {
		text := func(field string) string { return scalar(object.Object, "spec", field) }
		cidr, err := netip.ParsePrefix(text("cidr"))
		if err != nil || text("state") != "confirmed" || text("deleted") == "true" || text("type") == "virtual" {
			continue
		}
		carried := func(p Pool) bool { return !p.Felix && !p.Hidden && p.CIDR.Contains(cidr.Addr()) }
		if slices.ContainsFunc(in.Pools, carried) {
			in.Blocks = append(in.Blocks, Block{text("node"), cidr})
		}
	}
}

// felixRoutes reports whether Felix programs the routes of IPIP, like those of VXLAN.
func felixRoutes(s *cluster.Snapshot) bool {
	for _, object := range s.Calico("FelixConfiguration") {
		if object.GetName() == "default" && scalar(object.Object, "spec", "programClusterRoutes") == "Enabled" {
			return true
		}
	}
	return false
}

func readPool(object unstructured.Unstructured, felix bool) Pool {
	disabled, _, _ := unstructured.NestedBool(object.Object, "spec", "disabled")
	hidden, _, _ := unstructured.NestedBool(object.Object, "spec", "disableBGPExport")
	pool := Pool{Name: object.GetName(), Encapsulation: "none", Disabled: disabled, Hidden: hidden}
	pool.CIDR, _ = netip.ParsePrefix(scalar(object.Object, "spec", "cidr"))
	set := func(field string) bool {
		mode := scalar(object.Object, "spec", field)
		return mode != "" && mode != "Never"
	}
	switch {
	case set("vxlanMode"):
		pool.Encapsulation, pool.Felix = "VXLAN", true
	case set("ipipMode"):
		pool.Encapsulation, pool.Felix = "IPIP", felix
	}
	return pool
}

// backend returns the setting that decides whether calico-node starts BIRD (node/filesystem/etc/rc.local); why says
// which input is missing if it is unknown.
func backend(s *cluster.Snapshot) (value, why string) {
	for i := range s.DaemonSets {
		set := &s.DaemonSets[i]
		if set.Name != "calico-node" {
			continue
		}
		old, _ := variable(s, set, "CALICO_NETWORKING")
		switch old {
		case "":
			return variable(s, set, "CALICO_NETWORKING_BACKEND")
		case "false":
			return "none", ""
		}
		return "bird", ""
	}
	if ok, missing := s.Has("daemonsets"); !ok {
		return "", "daemonsets: " + missing
	}
	return "", "the DaemonSet calico-node is not in the input"
}

// variable resolves an environment variable of calico-node; empty if it is not set.
func variable(s *cluster.Snapshot, set *appsv1.DaemonSet, name string) (value, why string) {
	for _, container := range set.Spec.Template.Spec.Containers {
		for _, v := range container.Env {
			if v.Name != name {
				continue
			}
			if v.ValueFrom == nil || v.ValueFrom.ConfigMapKeyRef == nil {
				return v.Value, ""
			}
			ref := v.ValueFrom.ConfigMapKeyRef
			if stored := s.ConfigMap(set.Namespace, ref.Name); stored != nil {
				return stored.Data[ref.Key], ""
			}
			return "", fmt.Sprintf("%s of calico-node is in the ConfigMap %s/%s, which is not in the input",
				name, set.Namespace, ref.Name)
		}
	}
	return "", ""
}

// scalar returns a field that is text, a number or a boolean, as text; empty for any other type.
func scalar(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	switch v := value.(type) {
	case string:
		return v
	case int64, bool:
		return fmt.Sprint(v)
	}
	return ""
}

// address parses "10.0.0.1/24" or "10.0.0.1"; the zero value for anything else.
func address(text string) netip.Addr {
	host, _, _ := strings.Cut(text, "/")
	ip, _ := netip.ParseAddr(host)
	return ip
}

// parseAS parses an AS number, 64512 or 1.10; 0 for anything else.
func parseAS(text string) uint32 {
	high, low, dotted := strings.Cut(text, ".")
	if !dotted {
		n, _ := strconv.ParseUint(text, 10, 32)
		return uint32(n)
	}
	h, err1 := strconv.ParseUint(high, 10, 16)
	l, err2 := strconv.ParseUint(low, 10, 16)
	if err1 != nil || err2 != nil {
		return 0
	}
	return uint32(h<<16 | l)
}
