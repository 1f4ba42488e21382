package calico

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

var _ cni.Copier = Driver{}

// The areas of Calico's settings.
const (
	areaPools  = "IPPools"
	areaFelix  = "FelixConfigurations"
	areaBGP    = "BGPConfigurations"
	areaIPAM   = "IPAM"
	areaAgents = "calico-node"
)

// perNode begins the names of objects that are of one node.
const perNode = "node."

// Copy implements cni.Copier.
func (d Driver) Copy(c *cni.Copying) (*cni.Copied, error) {
	k := &copier{Copying: c, Copied: &cni.Copied{}}
	if c.Ours.Maker != nil || c.Theirs.Maker != nil || byOperator(c.Manifest) {
		k.Lack("settings of Calico", "Calico's operator writes them and reverts changes: set them in its Installation "+
			"on the scratch cluster")
		return k.Copied, nil
	}
	k.api = c.Scratch.CalicoAPI()
	if c.Manifest != nil {
		wanted, err := understand(c.Manifest)
		if err != nil {
			return nil, err
		}
		if k.api, err = wanted.api(c.Scratch.Definitions()); err != nil {
			return nil, err
		}
		if k.config = wanted.config; k.config != nil {
			k.config = k.config.DeepCopy()
		}
	} else if config := c.Scratch.ConfigMap(c.Theirs.Agent.Namespace, configName); config != nil {
		var err error
		if k.config, err = cni.Plain(config); err != nil {
			return nil, err
		}
		k.config.SetAPIVersion("v1")
		k.config.SetKind("ConfigMap")
	}
	k.pools()
	k.configurations("FelixConfiguration", k.felix)
	k.configurations("BGPConfiguration", k.bgp)
	k.ipam()
	k.mtu()
	if k.Manifest != nil && !k.serves() {
		why := "the snapshot has no enabled IPv4 pool"
		if len(k.Lacks) > 0 {
			why = k.Lacks[0].What + ": " + k.Lacks[0].Follows
		}
		return nil, refuse("none of the original's pools can be made on the scratch cluster: "+why,
			"install the network on the scratch cluster yourself, and leave out --network-manifest")
	}
	return k.Copied, nil
}

// copier copies Calico's settings.
type copier struct {
	*cni.Copying
	*cni.Copied
	api    string
	config *unstructured.Unstructured // the other cluster's calico-config; nil if it has none
}

// put adds an object to those that the other cluster gets.
func (k *copier) put(kind, name string, spec map[string]any) {
	k.Objects = append(k.Objects, &unstructured.Unstructured{Object: map[string]any{"apiVersion": k.api, "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": spec}})
}

func specOf(object *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	return spec
}

// sorted are Calico's objects of a kind by name.
func sorted(s *cluster.Snapshot, kind string) []unstructured.Unstructured {
	all := slices.Clone(s.Calico(kind))
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// matched are the other cluster's pools, by the name of the original's pool that each stands for: of the same name,
// or the only enabled one of each that is left.
func matched(original, copied *cluster.Snapshot) map[string]*unstructured.Unstructured {
	ours, theirs := sorted(original, "IPPool"), sorted(copied, "IPPool")
	all, taken := map[string]*unstructured.Unstructured{}, map[string]bool{}
	for i := range ours {
		for j := range theirs {
			if ours[i].GetName() == theirs[j].GetName() {
				all[ours[i].GetName()], taken[theirs[j].GetName()] = &theirs[j], true
			}
		}
	}
	var left, free []*unstructured.Unstructured
	for i := range ours {
		if all[ours[i].GetName()] == nil && specOf(&ours[i])["disabled"] != true {
			left = append(left, &ours[i])
		}
	}
	for j := range theirs {
		if !taken[theirs[j].GetName()] && specOf(&theirs[j])["disabled"] != true {
			free = append(free, &theirs[j])
		}
	}
	if len(left) == 1 && len(free) == 1 {
		all[left[0].GetName()] = free[0]
	}
	return all
}

// cidrOf is the range of a pool; invalid if it is not IPv4.
func cidrOf(pool *unstructured.Unstructured) netip.Prefix {
	text, _ := specOf(pool)["cidr"].(string)
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.Addr().Is4() {
		return netip.Prefix{}
	}
	return prefix.Masked()
}

// pools gives the other cluster the original's pools. A pool that is there keeps its range and its block size, since
// pods have addresses of it.
func (k *copier) pools() {
	if known, why := k.Original.HasCalico("ippools"); !known {
		k.Lack("IPPools", "the snapshot does not have them ("+why+"): the scratch cluster's pools stay")
		return
	}
	ours, there := sorted(k.Original, "IPPool"), map[string]*unstructured.Unstructured{}
	var taken []netip.Prefix
	if k.Manifest == nil {
		there = matched(k.Original, k.Scratch)
		for _, pool := range k.Scratch.Calico("IPPool") {
			if prefix := cidrOf(&pool); prefix.IsValid() {
				taken = append(taken, prefix)
			}
		}
	}
	enabled := 0
	for i := range ours {
		if specOf(&ours[i])["disabled"] != true {
			enabled++
		}
	}
	used := map[string]bool{}
	for i := range ours {
		pool := &ours[i]
		name, spec := "IPPool "+pool.GetName(), specOf(pool)
		if selector, ok := spec["nodeSelector"].(string); ok {
			spec["nodeSelector"] = k.renamed(selector)
		}
		if theirs := there[pool.GetName()]; theirs != nil {
			used[theirs.GetName()] = true
			k.keepsRange(pool, theirs, spec)
			continue
		}
		own := cidrOf(pool)
		if !own.IsValid() {
			k.Lack(name, "it has no IPv4 range: its pods are not rehearsed")
			continue
		}
		prefix, why := k.rangeFor(own, enabled, taken, spec["disabled"] == true)
		if !prefix.IsValid() {
			k.Lack(name+" with "+own.String(), why+": pods in the copy get no addresses of it")
			continue
		}
		taken = append(taken, prefix)
		spec["cidr"] = prefix.String()
		if block, _ := spec["blockSize"].(int64); int(block) < prefix.Bits() && block != 0 {
			k.Lack(name+": blockSize "+fmt.Sprint(block), "its blocks are larger than the range that fits the scratch "+
				"cluster: it has the default block size")
			delete(spec, "blockSize")
		}
		k.put("IPPool", pool.GetName(), spec)
		k.Say(name, "made with %s", why)
	}
	if k.Manifest != nil || len(k.Objects) == 0 {
		return
	}
	for _, pool := range sorted(k.Scratch, "IPPool") { // pods get no more addresses of it
		if spec := specOf(&pool); !used[pool.GetName()] && spec["disabled"] != true && k.serves() {
			spec["disabled"] = true
			k.put("IPPool", pool.GetName(), spec)
			k.Say("IPPool "+pool.GetName()+" of the scratch cluster", "disabled: the original has no such pool")
		}
	}
}

// serves reports whether pods can get addresses of the pools that are copied.
func (k *copier) serves() bool {
	return slices.ContainsFunc(k.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "IPPool" && specOf(o)["disabled"] != true
	})
}

// keepsRange changes a pool that is there.
func (k *copier) keepsRange(ours, theirs *unstructured.Unstructured, spec map[string]any) {
	name, has := "IPPool "+ours.GetName(), specOf(theirs)
	said := "the scratch cluster's pool " + theirs.GetName()
	if own := spec["cidr"]; own != has["cidr"] {
		said += fmt.Sprintf(", with its range %v instead of %v", has["cidr"], own)
	}
	if ours, theirs := blockSize(spec), blockSize(has); ours != theirs {
		k.Lack(fmt.Sprintf("%s: blockSize %d", name, ours), fmt.Sprintf("pods have addresses of the scratch cluster's "+
			"pool, with blocks of %d: the copy does not show when nodes run out of blocks; use a scratch cluster "+
			"without a network and --network-manifest to keep this block size", theirs))
	}
	for _, fixed := range []string{"cidr", "blockSize"} {
		delete(spec, fixed)
		if value, ok := has[fixed]; ok {
			spec[fixed] = value
		}
	}
	k.put("IPPool", theirs.GetName(), spec)
	k.Say(name, "%s", said)
}

func blockSize(spec map[string]any) int64 {
	if size, ok := spec["blockSize"].(int64); ok && size != 0 {
		return size
	}
	return 26 // Calico's default for IPv4
}

// rangeFor is the range that a pool gets, and why: its own, or one that fits the other cluster.
func (k *copier) rangeFor(own netip.Prefix, several int, taken []netip.Prefix, disabled bool) (netip.Prefix, string) {
	clash := k.Clash(own)
	for _, other := range taken {
		if clash == "" && own.Overlaps(other) {
			clash = "its pool " + other.String()
		}
	}
	proxied, err := netip.ParsePrefix(k.Proxied)
	switch {
	case clash != "":
		clash = "overlaps " + clash
	case err == nil && !disabled && !cni.Within(proxied, own):
		clash = "is outside of " + proxied.String() + ", which kube-proxy there takes for the range of pods"
	default:
		return own, "its own range " + own.String()
	}
	if disabled {
		return netip.Prefix{}, "it " + clash
	}
	within := k.Range()
	if !within.IsValid() {
		return netip.Prefix{}, "it " + clash + ", and the range of the scratch cluster's pods is not known"
	}
	fit := cni.Fit(within, own, several, taken)
	if !fit.IsValid() || k.Clash(fit) != "" {
		return netip.Prefix{}, "it " + clash + ", and no part of " + within.String() + " is free"
	}
	return fit, fmt.Sprintf("%s of the scratch cluster's range, since its own range %s %s", fit, own, clash)
}

// renamed replaces the names of the original's nodes in a selector.
func (k *copier) renamed(selector string) string { return renamed(selector, k.Plays) }

func renamed(selector string, plays map[string]string) string {
	for _, quote := range []string{"'", `"`} {
		parts := strings.Split(selector, quote)
		for i := 1; i < len(parts); i += 2 {
			parts[i] = cmp.Or(plays[parts[i]], parts[i])
		}
		selector = strings.Join(parts, quote)
	}
	return selector
}

// configurations copies the objects of a kind of which one is of the cluster, and others are of one node.
func (k *copier) configurations(kind string, fit func(name string, spec map[string]any)) {
	of := map[string]map[string]any{}
	for _, object := range sorted(k.Original, kind) {
		name, said := object.GetName(), kind+" "+object.GetName()
		if node, single := strings.CutPrefix(name, perNode); single {
			plays := k.Plays[node]
			if plays == "" {
				continue // of a node that is gone
			}
			name = perNode + plays
		} else if name != "default" {
			continue // which no agent reads
		}
		spec := specOf(&object)
		if spec == nil {
			spec = map[string]any{}
		}
		fit(said, spec)
		if had, again := of[name]; again {
			if !equality.Semantic.DeepEqual(had, spec) {
				k.Lack(said, fmt.Sprintf("node %s also stands for another node with different settings, "+
					"and got those", name[len(perNode):]))
			}
			continue
		}
		of[name] = spec
		k.put(kind, name, spec)
		k.Say(said, "copied as %s", name)
	}
}

// leave removes fields of an object that belong to the surroundings of the original.
func (k *copier) leave(name string, spec map[string]any, fields ...string) {
	for _, field := range fields {
		if _, has := spec[field]; has {
			delete(spec, field)
			k.Lack(name+": "+field, "left out: it refers to addresses outside of the cluster")
		}
	}
}

// overheads are what the encapsulations need of a packet, by the field of Felix' that sets the MTU of their links.
var overheads = map[string]int{"vxlanMTU": 50, "ipipMTU": 20, "wireguardMTU": 60}

// felix takes out what the other cluster cannot have.
func (k *copier) felix(name string, spec map[string]any) {
	k.leave(name, spec, "natOutgoingAddress", "externalNodesList", "metadataAddr", "metadataPort",
		"deviceRouteSourceAddress", "deviceRouteSourceAddressIPv6")
	if spec["bpfEnabled"] == true {
		delete(spec, "bpfEnabled")
		k.Lack(name+": bpfEnabled", "the eBPF data plane replaces kube-proxy: the copy has the standard one")
	}
	for field, overhead := range overheads {
		if mtu, _ := spec[field].(int64); mtu > 0 && k.tooBig(name+": "+field, int(mtu), overhead) {
			delete(spec, field)
		}
	}
}

// tooBig reports whether packets with an MTU do not fit the links of the other cluster, and says so.
func (k *copier) tooBig(what string, mtu, overhead int) bool {
	link := k.LinkMTU()
	if link == 0 || mtu+overhead <= link {
		return false
	}
	k.Lack(fmt.Sprintf("%s %d", what, mtu), fmt.Sprintf("the links of the scratch cluster have %d, of which "+
		"encapsulation needs %d: large packets are rehearsed with the MTU of the scratch cluster", link, overhead))
	return true
}

// bgp takes out what the other cluster cannot have.
func (k *copier) bgp(name string, spec map[string]any) {
	k.leave(name, spec, "serviceClusterIPs", "serviceExternalIPs", "serviceLoadBalancerIPs", "nodeMeshPassword",
		"localWorkloadPeeringIPV4", "localWorkloadPeeringIPV6")
	if spec["nodeToNodeMeshEnabled"] != false {
		return
	}
	why := ""
	for i := range k.Original.Nodes {
		name := k.Original.Nodes[i].Name
		if k.Original.Nodes[i].Annotations[bgp.AnnotationClusterID] != "" && !k.reflects(k.Plays[name]) {
			why = "the node that stands for the route reflector " + name + " is none"
		}
	}
	for _, peer := range k.Original.Calico("BGPPeer") {
		spec := specOf(&peer)
		if spec["peerSelector"] == nil || spec["peerIP"] != nil && spec["peerIP"] != "" ||
			spec["node"] != nil && spec["node"] != "" {
			why = "BGPPeer " + peer.GetName() + " is not in the copy"
		}
	}
	if why != "" {
		spec["nodeToNodeMeshEnabled"] = true
		k.Lack(name+": nodeToNodeMeshEnabled false", why+": the nodes of the copy have a full mesh of sessions, and "+
			"what happens without one is not rehearsed")
	}
}

// reflects reports whether a node of the other cluster is a route reflector.
func (k *copier) reflects(name string) bool {
	return slices.ContainsFunc(k.Scratch.Nodes, func(n corev1.Node) bool {
		return n.Name == name && n.Annotations[bgp.AnnotationClusterID] != ""
	})
}

// ipamKind is the kind of IPAM's configuration in an API version.
func ipamKind(api string) string {
	if api == cluster.CalicoServed {
		return "IPAMConfiguration"
	}
	return "IPAMConfig"
}

func ipamOf(s *cluster.Snapshot) *unstructured.Unstructured {
	for _, kind := range []string{"IPAMConfiguration", "IPAMConfig"} {
		for _, object := range s.Calico(kind) {
			if object.GetName() == "default" {
				return &object
			}
		}
	}
	return nil
}

func (k *copier) ipam() {
	if object := ipamOf(k.Original); object != nil {
		k.put(ipamKind(k.api), "default", specOf(object))
		k.Say(object.GetKind()+" default", "copied")
	}
}

// vethMTU is the MTU that the ConfigMap of the agents sets for pods; 0 if they choose.
func vethMTU(s *cluster.Snapshot, namespace string) int {
	if config := s.ConfigMap(namespace, configName); config != nil {
		mtu, _ := strconv.Atoi(config.Data["veth_mtu"])
		return mtu
	}
	return 0
}

// mtu sets the MTU of pods, which the agents and their installer read when they start.
func (k *copier) mtu() {
	wanted := vethMTU(k.Original, k.Ours.Agent.Namespace)
	if k.config == nil {
		if wanted > 0 {
			k.Lack(fmt.Sprintf("MTU of pods %d", wanted), "the scratch cluster has no ConfigMap "+configName)
		}
		return
	}
	m := &manifest{config: k.config}
	now, _ := strconv.Atoi(m.setting("veth_mtu"))
	if now == wanted || wanted > 0 && k.tooBig("MTU of pods", wanted, k.Ours.Capabilities.Overhead) {
		return
	}
	m.set("veth_mtu", strconv.Itoa(wanted))
	k.Objects = append(k.Objects, k.config)
	if k.Manifest == nil {
		k.Restart = append(k.Restart, k.Theirs.Agent)
	}
	k.Say("ConfigMap "+k.config.GetNamespace()+"/"+configName, "veth_mtu %d", wanted)
}

// Settings implements cni.Copier.
func (Driver) Settings(original, copied *cluster.Snapshot, plays map[string]string) (all []cni.Setting) {
	there := matched(original, copied)
	defaults := map[string]string{"ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": "false", "blockSize": "26",
		"nodeSelector": "all()", "disabled": "false"}
	for _, pool := range sorted(original, "IPPool") {
		ours, theirs := specOf(&pool), map[string]any(nil)
		if there[pool.GetName()] == nil {
			all = append(all, cni.Setting{Area: areaPools, Name: pool.GetName(), Original: "yes"})
			continue
		}
		theirs = specOf(there[pool.GetName()])
		if selector, ok := ours["nodeSelector"].(string); ok {
			ours["nodeSelector"] = renamed(selector, plays)
		}
		all = append(all, cni.Setting{Area: cni.AreaRanges, Name: "IPPool " + pool.GetName(),
			Original: cni.FieldText(ours["cidr"]), Copy: cni.FieldText(theirs["cidr"])})
		for field, value := range defaults {
			for _, spec := range []map[string]any{ours, theirs} {
				if cni.FieldText(spec[field]) == "" {
					spec[field] = value
				}
			}
		}
		all = append(all, cni.CompareFields(areaPools, pool.GetName()+": ", ours, theirs, "cidr", "nat-outgoing")...)
	}
	all = append(all, compareConfigurations(areaFelix, "FelixConfiguration", original, copied, plays)...)
	all = append(all, compareConfigurations(areaBGP, "BGPConfiguration", original, copied, plays)...)
	if ours, theirs := ipamOf(original), ipamOf(copied); ours != nil {
		spec := map[string]any{}
		if theirs != nil {
			spec = specOf(theirs)
		}
		all = append(all, cni.CompareFields(areaIPAM, "", specOf(ours), spec)...)
	}
	one, other := agentIn(original), agentIn(copied)
	if one == nil || other == nil {
		return all
	}
	all = append(all, cni.Setting{Area: cni.AreaMTU, Name: "veth_mtu", Links: true,
		Original: strconv.Itoa(vethMTU(original, one.Namespace)), Copy: strconv.Itoa(vethMTU(copied, other.Namespace))})
	ours, theirs := map[string]any{}, map[string]any{}
	for _, c := range one.Spec.Template.Spec.Containers {
		for _, v := range c.Env {
			ours[v.Name] = v.Value
		}
	}
	for _, c := range other.Spec.Template.Spec.Containers {
		for _, v := range c.Env {
			theirs[v.Name] = v.Value
		}
	}
	for _, fields := range []map[string]any{ours, theirs} {
		maps.DeleteFunc(fields, func(_ string, value any) bool { return value == "" }) // of a reference, or empty
	}
	return append(all, cni.CompareFields(areaAgents, "", ours, theirs, poolCIDR)...)
}

// compareConfigurations compares the objects of a kind of which one is of the cluster, and others are of one node.
func compareConfigurations(area, kind string, original, copied *cluster.Snapshot,
	plays map[string]string) (all []cni.Setting) {
	theirs := map[string]map[string]any{}
	for _, object := range copied.Calico(kind) {
		theirs[object.GetName()] = specOf(&object)
	}
	for _, object := range sorted(original, kind) {
		name := object.GetName()
		if node, single := strings.CutPrefix(name, perNode); single {
			if plays[node] == "" {
				continue
			}
			name = perNode + plays[node]
		} else if name != "default" {
			continue
		}
		of := object.GetName() + ": "
		for _, setting := range cni.CompareFields(area, of, specOf(&object), theirs[name]) {
			setting.Links = overheads[strings.TrimPrefix(setting.Name, of)] > 0
			all = append(all, setting)
		}
	}
	return all
}
