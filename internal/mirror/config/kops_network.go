package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/theseus-cni/theseus/internal/mirror/splice"
)

// networks are those that kops knows (NetworkingSpec of v1alpha2), and whether a cluster can still be given each.
var networks = []struct {
	key    string
	config string // the least that kops takes; empty: no cluster is given it any more
}{
	{"amazonvpc", "{}"}, {"calico", "{}"}, {"canal", ""}, {"cilium", "{}"}, {"classic", ""},
	{"cni", "{}"}, {"external", ""}, {"flannel", "backend: vxlan"}, {"gce", ""}, {"kindnet", "{}"}, {"kopeio", ""},
	{"kubenet", ""}, {"kuberouter", "{}"}, {"lyftvpc", ""}, {"romana", ""}, {"weave", ""},
}

// Networks returns the networks to which a kops configuration can be changed.
func Networks() []string {
	var keys []string
	for _, n := range networks {
		if n.config != "" {
			keys = append(keys, n.key)
		}
	}
	return keys
}

// has is the network of the cluster, empty where none or more than one is named.
func (k *kopsJob) has() string {
	networking := splice.Get(k.spec, "networking")
	found := ""
	for _, n := range networks {
		if splice.Get(networking, n.key) != nil {
			if found != "" {
				return ""
			}
			found = n.key
		}
	}
	return found
}

// network changes the network.
func (k *kopsJob) network() error {
	at := slices.IndexFunc(networks, func(n struct{ key, config string }) bool {
		return n.key == k.Network && n.config != ""
	})
	if at < 0 {
		return &Usage{fmt.Errorf("kops gives no cluster the network %q", k.Network),
			"one of " + strings.Join(Networks(), ", ")}
	}
	networking := splice.Get(k.spec, "networking")
	old := k.has()
	if old == "" {
		line := k.spec.Line
		if networking != nil {
			line = networking.Line
		}
		return &splice.Error{File: k.cluster.file.Name, Line: line,
			Err:    fmt.Errorf("spec.networking does not name one network that is known here"),
			Advice: "give what kops get -o yaml prints"}
	}
	if old == k.Network {
		return &Usage{fmt.Errorf("the network is %s already", old), "leave --to out, or name another"}
	}
	if err := k.suits(old); err != nil {
		return err
	}
	config := networks[at].config
	proxy := splice.Get(k.spec, "kubeProxy")
	off := splice.Text(proxy, "enabled") == "false"
	if k.Network == "cilium" && off {
		config = "enableNodePort: true"
	}
	before := splice.Get(networking, old)
	if settings := brief(before, ""); settings != "{}" && settings != "" && before.ShortTag() != "!!null" {
		k.note("the settings of %s are not those of %s and do not go over: %s", old, k.Network, settings)
	}
	k.change(k.cluster, before, "spec.networking", old, k.Network+": "+config, "the new network")
	k.cluster.file.Swap(networking, old, k.Network, config)
	switch {
	case k.Network == "kuberouter" && !off:
		k.kubeProxy(proxy, "false", "kube-router is the proxy of Services, and kops wants kube-proxy off with it")
	case off && k.Network != "kuberouter" && k.Network != "cilium":
		k.kubeProxy(proxy, "true", k.Network+" leaves Services to kube-proxy")
	}
	k.ranges(old)
	for i, cluster := range splice.Items(k.spec, "etcdClusters") {
		if old == "cilium" && splice.Text(cluster, "name") == "cilium" {
			k.note("spec.etcdClusters.%d was cilium's: kops lets no etcd cluster of a living cluster "+
				"be removed, so it stays", i)
		}
	}
	if k.Name == "" {
		k.note("kops leaves behind what %s installed, its DaemonSet first: it must be deleted, and every node replaced",
			old)
	}
	return nil
}

func (k *kopsJob) kubeProxy(proxy *yaml.Node, enabled, why string) {
	if proxy != nil && len(proxy.Content) > 0 {
		k.put(k.cluster, proxy, "enabled", enabled, "spec.kubeProxy.enabled", why)
		return
	}
	k.put(k.cluster, k.spec, "kubeProxy", "enabled: "+enabled, "spec.kubeProxy", why)
}

// suits refuses networks that kops does not make in this cluster.
func (k *kopsJob) suits(old string) error {
	cloud := splice.Text(k.spec, "cloudProvider")
	switch {
	case k.Network == "amazonvpc" && cloud != "" && cloud != "aws":
		return &Usage{fmt.Errorf("kops makes amazonvpc on AWS only, and this is %s", cloud), "name another with --to"}
	case strings.Contains(splice.Text(k.spec, "nonMasqueradeCIDR"), ":") &&
		slices.Contains([]string{"amazonvpc", "flannel", "kuberouter"}, k.Network):
		return &Usage{fmt.Errorf("kops makes no %s where addresses are IPv6 only", k.Network), "name another with --to"}
	}
	return nil
}

// ranges asks for the pods' range where one of the two networks takes it out of the VPC.
func (k *kopsJob) ranges(old string) {
	node := splice.Get(k.spec, "nonMasqueradeCIDR")
	if node == nil || old != "amazonvpc" && k.Network != "amazonvpc" {
		return
	}
	text := fmt.Sprintf("spec.nonMasqueradeCIDR is %s. With amazonvpc pods have addresses of the VPC, with every "+
		"other network the range must not overlap with it", node.Value)
	if k.Network == "amazonvpc" {
		text += "; kops gives new clusters of amazonvpc the VPC's own range here"
		k.note("with amazonvpc every pod takes an address of its subnet: compare the subnets' free " +
			"addresses with the number of pods")
	} else {
		text += "; kops gives new clusters 100.64.0.0/10"
	}
	if answer, ok := k.ask(k.cluster, node, "nonMasqueradeCIDR", text, "keep", "CIDR"); ok && answer != "keep" {
		k.set(k.cluster, node, "spec.nonMasqueradeCIDR", answer, "decided: the range in which pods are")
	}
}

// place asks in which network the mirror's machines will be, and moves ranges accordingly.
func (k *kopsJob) place() error {
	network, cidr := splice.Get(k.spec, "networkID"), splice.Get(k.spec, "networkCIDR")
	at, text, answers := k.spec, "the original has a network of its own", []string{"own", "CIDR", "ID"}
	if cidr != nil {
		at, text = cidr, text+", "+cidr.Value
	}
	if network != nil && network.Value != "" {
		at, text, answers = network, "the original is in the shared network "+network.Value, append(answers, "shared")
	}
	text += ". Where is the mirror to be? own: in a new one with the same range, which can never be connected " +
		"with the original's; CIDR: in a new one with that range; ID: in the existing network of that " +
		"name, which may be the original's"
	if len(answers) == 4 {
		text += "; shared: in the same"
	}
	answer, ok := k.ask(k.cluster, at, "network", text, answers...)
	if !ok {
		_, _, err := k.peering() // all questions are asked at once
		return err
	}
	k.asked["peering"] = true // next to the network; only one of the mirror's own needs the answer
	shared := network != nil && network.Value != "" && (answer == "shared" || answer == network.Value)
	prefix, err := netip.ParsePrefix(answer)
	switch {
	case shared:
		return k.inside(network.Value, true)
	case answer == "shared":
		return &Usage{fmt.Errorf("--answer network=shared: the original names no network"), "name the network's ID"}
	case err != nil && answer != "own":
		if _, err := netip.ParseAddr(answer); err == nil ||
			splice.Text(k.spec, "cloudProvider") == "aws" && !strings.HasPrefix(answer, "vpc-") {
			return &Usage{fmt.Errorf("--answer network=%s: neither a range nor the ID of a network", answer),
				"such as network=10.44.0.0/16 or network=vpc-0123456789abcdef0"}
		}
		if network != nil {
			k.set(k.cluster, network, "spec.networkID", answer, "decided: the existing network that the mirror is in")
		} else {
			k.put(k.cluster, k.spec, "networkID", answer, "spec.networkID",
				"decided: the existing network that the mirror is in")
		}
		return k.inside(answer, false)
	}
	k.drop(k.cluster, k.spec, "networkID", "spec.networkID", "decided: the mirror has a network of its own")
	return k.ownNetwork(cidr, prefix, err == nil)
}

// peering asks whether the mirror's own network must reach the original's.
func (k *kopsJob) peering() (answer string, ok bool, err error) {
	return k.choose(k.cluster, k.spec, "peering", "where the mirror has a network of its own: is it connected with "+
		"the original's, now or later (peering, transit gateway, VPN), such as to reach one database?", "yes", "no")
}

// ownNetwork gives the mirror a network of its own, with the same range or another.
func (k *kopsJob) ownNetwork(cidr *yaml.Node, prefix netip.Prefix, moved bool) error {
	peered, ok, err := k.peering()
	if err != nil {
		return err
	}
	subnets := splice.Items(k.spec, "subnets")
	if moved {
		if cidr == nil {
			return &Usage{fmt.Errorf("--answer network=%s: the original's configuration has no networkCIDR", prefix),
				"answer own"}
		}
		old, err := netip.ParsePrefix(cidr.Value)
		if err != nil {
			return &splice.Error{File: k.cluster.file.Name, Line: cidr.Line,
				Err: fmt.Errorf("networkCIDR: %w", err), Advice: "correct it"}
		}
		if prefix != prefix.Masked() || prefix.Addr().Is4() != old.Addr().Is4() {
			return &Usage{fmt.Errorf("--answer network=%s: no range, which would begin at %s, or not of the kind of %s",
				prefix, prefix.Masked(), old), "give the range itself"}
		}
		if err := k.move(cidr, subnets, old, prefix); err != nil {
			return err
		}
		if ok && peered == "yes" && prefix.Overlaps(old) {
			return &Usage{fmt.Errorf("peering=yes and network=%s, which overlaps with the original's %s", prefix, old),
				"networks that overlap cannot be connected: give another range"}
		}
	} else if ok && peered == "yes" {
		return &Usage{fmt.Errorf("peering=yes and network=own: both networks have the same range"),
			"networks that overlap cannot be connected: answer network with another range"}
	}
	for _, subnet := range subnets {
		k.outsideSubnet(subnet)
	}
	k.additional(moved)
	k.groupsOfNetwork()
	if ok && peered == "yes" {
		return k.pods()
	}
	return nil
}

// move puts subnets at the same distance from the start of the new range.
func (k *kopsJob) move(cidr *yaml.Node, subnets []*yaml.Node, old, prefix netip.Prefix) error {
	k.set(k.cluster, cidr, "spec.networkCIDR", prefix.String(), "decided: the range of the mirror's network")
	for i, subnet := range subnets {
		node := splice.Get(subnet, "cidr")
		if node == nil || node.Value == "" {
			continue
		}
		path := fmt.Sprintf("spec.subnets.%s.cidr", splice.Text(subnet, "name"))
		was, err := netip.ParsePrefix(node.Value)
		if err != nil {
			return &splice.Error{File: k.cluster.file.Name, Line: node.Line,
				Err: fmt.Errorf("spec.subnets.%d.cidr: %w", i, err), Advice: "correct it"}
		}
		if to, ok := rebase(was, old, prefix); ok {
			k.set(k.cluster, node, path, to.String(), "at the same place in the new range")
			continue
		}
		text := fmt.Sprintf("%s is %s, which has no like in %s", path, was, prefix)
		if err := k.askRange(node, path, text, prefix, "the subnet in the mirror's network"); err != nil {
			return err
		}
	}
	return nil
}

// askRange asks for a range inside of another.
func (k *kopsJob) askRange(node *yaml.Node, path, text string, inside netip.Prefix, why string) error {
	answer, ok := k.ask(k.cluster, node, k.cluster.short(path), text, "CIDR")
	if !ok {
		k.done[node] = true
		return nil
	}
	to, err := netip.ParsePrefix(answer)
	if err != nil || to != to.Masked() ||
		inside.IsValid() && (!inside.Contains(to.Addr()) || to.Bits() < inside.Bits()) {
		return &Usage{fmt.Errorf("--answer %s=%s: no range of %s", k.cluster.short(path), answer, inside),
			"such as " + node.Value}
	}
	k.set(k.cluster, node, path, answer, "decided: "+why)
	return nil
}

// rebase moves a range from one that holds it to another of the same size.
func rebase(p, from, to netip.Prefix) (netip.Prefix, bool) {
	if !from.Contains(p.Addr()) || p.Bits() < from.Bits() || from.Bits() != to.Bits() ||
		from.Addr().BitLen() != to.Addr().BitLen() {
		return p, false
	}
	bytes, base := p.Addr().AsSlice(), to.Masked().Addr().AsSlice()
	for bit := range to.Bits() {
		mask := byte(0x80) >> (bit % 8)
		bytes[bit/8] = bytes[bit/8]&^mask | base[bit/8]&mask
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, p.Bits()), true
}

// outsideSubnet takes what belongs to the original's network out of a subnet, or asks.
func (k *kopsJob) outsideSubnet(subnet *yaml.Node) {
	path := "spec.subnets." + splice.Text(subnet, "name") + "."
	k.drop(k.cluster, subnet, "id", path+"id", "a subnet of the original's network: the mirror makes its own")
	if egress := splice.Get(subnet, "egress"); egress != nil && egress.Value != "" {
		k.outside(k.cluster, subnet, "egress", path+"egress",
			"how the subnet reaches the outside, in the original's network; drop: kops makes it")
	}
	k.outside(k.cluster, subnet, "publicIP", path+"publicIP", "an address that the original's gateway has")
	for i, route := range splice.Items(subnet, "additionalRoutes") {
		k.outside(k.cluster, route, "target", fmt.Sprintf("%sadditionalRoutes.%d.target", path, i),
			"where a route of the original's network leads")
	}
}

// additional asks about more ranges of the network.
func (k *kopsJob) additional(moved bool) {
	if moved {
		k.outsideItems(k.cluster, k.spec, "additionalNetworkCIDRs", "spec.additionalNetworkCIDRs",
			"a further range of the original's network", always)
	}
}

// groupsOfNetwork asks about security groups: each belongs to one network.
func (k *kopsJob) groupsOfNetwork() {
	const what = "a security group belongs to one network, and this one to the original's"
	if balancer := splice.Get(k.spec, "api", "loadBalancer"); balancer != nil {
		k.outside(k.cluster, balancer, "securityGroupOverride", "spec.api.loadBalancer.securityGroupOverride", what)
		k.outsideItems(k.cluster, balancer, "additionalSecurityGroups",
			"spec.api.loadBalancer.additionalSecurityGroups", what, always)
	}
	for _, g := range k.groups {
		spec := splice.Get(g.Node, "spec")
		k.outside(g, spec, "securityGroupOverride", "spec.securityGroupOverride", what)
		k.outsideItems(g, spec, "additionalSecurityGroups", "spec.additionalSecurityGroups", what, always)
	}
}

// inside puts the mirror into a network that exists.
func (k *kopsJob) inside(network string, same bool) error {
	var ranges []netip.Prefix
	if own := splice.Text(k.spec, "networkID") == "" || splice.Text(k.spec, "networkID") == network; own {
		ranges = k.takenRanges()
	}
	cidr := splice.Get(k.spec, "networkCIDR")
	inside, _ := netip.ParsePrefix(splice.Text(k.spec, "networkCIDR"))
	if !same && cidr != nil {
		answer, ok := k.ask(k.cluster, cidr, "networkCIDR",
			fmt.Sprintf("spec.networkCIDR is %s; which range has %s? drop: kops asks the cloud", cidr.Value, network),
			"keep", "drop", "CIDR")
		switch {
		case !ok:
		case answer == "drop":
			inside = netip.Prefix{}
			k.drop(k.cluster, k.spec, "networkCIDR", "spec.networkCIDR", "decided: kops asks the cloud")
		case answer != "keep":
			var err error
			if inside, err = netip.ParsePrefix(answer); err != nil {
				return &Usage{fmt.Errorf("--answer networkCIDR=%s: no range", answer), "such as 10.1.0.0/16"}
			}
			k.set(k.cluster, cidr, "spec.networkCIDR", answer, "decided: the range of the existing network")
		}
	}
	for _, subnet := range splice.Items(k.spec, "subnets") {
		name := splice.Text(subnet, "name")
		id, node := splice.Get(subnet, "id"), splice.Get(subnet, "cidr")
		switch {
		case id != nil && id.Value != "" && same:
			k.note("subnet %s (%s) is used by both clusters: tag it kubernetes.io/cluster/%s=shared",
				name, id.Value, k.Name)
		case id != nil && id.Value != "":
			k.outside(k.cluster, subnet, "id", "spec.subnets."+name+".id", "a subnet of the original's network")
		case node != nil && node.Value != "":
			path := "spec.subnets." + name + ".cidr"
			within := inside
			if len(splice.Items(k.spec, "additionalNetworkCIDRs")) > 0 {
				within = netip.Prefix{}
			}
			if err := k.askRange(node, path,
				fmt.Sprintf("%s is %s, which the original has: which free range of %s has the mirror's subnet?",
					path, node.Value, network), within, "the subnet in "+network); err != nil {
				return err
			}
			to, err := netip.ParsePrefix(node.Value)
			if i := slices.IndexFunc(ranges, to.Overlaps); err == nil &&
				k.Answers[k.cluster.short(path)] != "" && i >= 0 {
				return &Usage{fmt.Errorf("--answer %s=%s overlaps with %s, which is taken",
					k.cluster.short(path), to, ranges[i]), "give a free range of the network"}
			}
			ranges = append(ranges, to)
		}
		if !same {
			k.outside(k.cluster, subnet, "egress", "spec.subnets."+name+".egress",
				"how the subnet reaches the outside, in the original's network")
		}
	}
	if !same {
		k.groupsOfNetwork()
	}
	return k.pods()
}

// takenRanges are those of the original's subnets.
func (k *kopsJob) takenRanges() []netip.Prefix {
	var taken []netip.Prefix
	for _, subnet := range splice.Items(k.spec, "subnets") {
		if p, err := netip.ParsePrefix(splice.Text(subnet, "cidr")); err == nil {
			taken = append(taken, p)
		}
	}
	return taken
}

// inPods are the fields with addresses out of the range of pods and Services.
var inPods = []string{"podCIDR", "serviceClusterIPRange", "kubeAPIServer.serviceClusterIPRange",
	"kubeControllerManager.clusterCIDR", "kubeControllerManager.serviceClusterIPRange",
	"kubeProxy.clusterCIDR", "kubeDNS.serverIP", "kubelet.clusterDNS", "kubelet.podCIDR",
	"masterKubelet.clusterDNS", "masterKubelet.podCIDR"}

// pods asks whether pods of the two clusters may have the same addresses, where one network carries both.
func (k *kopsJob) pods() error {
	node := splice.Get(k.spec, "nonMasqueradeCIDR")
	if node == nil || node.Value == "" {
		return nil
	}
	text := fmt.Sprintf("pods and Services of both clusters would have addresses of %s. That does no harm where the "+
		"network carries them in an overlay; where it routes them, or clusters are joined, the mirror needs a range "+
		"of its own of the same size", node.Value)
	answer, ok := k.ask(k.cluster, node, "pods", text, "same", "CIDR")
	if !ok || answer == "same" {
		k.done[node] = true
		return nil
	}
	old, err := netip.ParsePrefix(node.Value)
	if err != nil {
		return &splice.Error{File: k.cluster.file.Name, Line: node.Line, Err: fmt.Errorf("nonMasqueradeCIDR: %w", err),
			Advice: "correct it"}
	}
	prefix, err := netip.ParsePrefix(answer)
	if err != nil || prefix != prefix.Masked() || prefix.Bits() != old.Bits() ||
		prefix.Addr().Is4() != old.Addr().Is4() {
		return &Usage{fmt.Errorf("--answer pods=%s: no range of the size of %s", answer, old), "such as 100.128.0.0/10"}
	}
	if machines, err := netip.ParsePrefix(splice.Text(k.spec, "networkCIDR")); err == nil && machines.Overlaps(prefix) {
		return &Usage{fmt.Errorf("--answer pods=%s overlaps with the machines' %s", answer, machines),
			"give a range that is free"}
	}
	k.set(k.cluster, node, "spec.nonMasqueradeCIDR", answer, "decided: a range of pods and Services of its own")
	for _, path := range inPods {
		k.rebaseField(splice.Get(k.spec, strings.Split(path, ".")...), "spec."+path, old, prefix)
	}
	if splice.Text(k.spec, "serviceClusterIPRange") == "" {
		k.note("spec.serviceClusterIPRange is not set: kops 1.31 and newer take 100.64.0.0/13 for it, " +
			"whatever the pods' range is")
	}
	k.note("Services that name their cluster IP, and whatever else has one written down, do not fit the mirror's range")
	return nil
}

// rebaseField moves a range or an address.
func (k *kopsJob) rebaseField(node *yaml.Node, path string, old, prefix netip.Prefix) {
	if node == nil {
		return
	}
	const why = "at the same place in the range of pods and Services"
	if p, err := netip.ParsePrefix(node.Value); err == nil {
		if to, ok := rebase(p, old, prefix); ok {
			k.set(k.cluster, node, path, to.String(), why)
		}
	} else if a, err := netip.ParseAddr(node.Value); err == nil {
		if to, ok := rebase(netip.PrefixFrom(a, a.BitLen()), old, prefix); ok {
			k.set(k.cluster, node, path, to.Addr().String(), why)
		}
	}
}
