package weave

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// agentIn is the DaemonSet that runs the router.
func agentIn(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	for i := range snapshot.DaemonSets {
		if router(&snapshot.DaemonSets[i]) != nil {
			return &snapshot.DaemonSets[i]
		}
	}
	return nil
}

// router is the container that runs the router, whoever built its image.
func router(set *appsv1.DaemonSet) *corev1.Container {
	containers := set.Spec.Template.Spec.Containers
	for i := range containers {
		if cni.ImageOf(containers[i:i+1], "weave-kube") != "" {
			return &containers[i]
		}
	}
	return nil
}

func describe(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) *cni.Installation {
	containers := agent.Spec.Template.Spec.Containers
	version := cluster.ImageOf(router(agent).Image).Tag
	s, problems := read(router(agent))
	s.policy = s.policy && cni.ImageOf(containers, "weave-npc") != ""
	s.bridgeMTU, s.linkMTU = measured(snapshot)
	caps := capabilities(s)
	if s.pods.IsValid() {
		caps.Masquerade = &cni.Masquerade{From: s.ranges(), Except: append(s.ranges(), cni.Multicast)}
	}
	caps.Attachment, caps.Unattached = attachment(snapshot, s)
	return &cni.Installation{
		CNI:          "weave",
		Version:      version,
		Agent:        cni.DaemonSetRef(agent),
		Selector:     cni.SelectorOf(agent),
		PodCIDRs:     s.ranges(),
		Capabilities: caps,
		Parts:        parts(snapshot, agent),
		Problems:     append(problems, cni.NotReady(snapshot, agent)...),
	}
}

// settings are what a user decides by environment variables, and what nodes show.
type settings struct {
	pods      netip.Prefix
	router    string // where its API is, on each node
	sleeve    bool   // no Open vSwitch data path: frames go through the router, in UDP
	policy    bool
	mtu       int // of the pods, where the user fixed it
	bridgeMTU int // smallest of the bridges, where nodes were looked at
	linkMTU   int // smallest of the links between nodes, where nodes were looked at
}

func (s settings) ranges() []string {
	if !s.pods.IsValid() {
		return nil
	}
	return []string{s.pods.String()}
}

// read takes the settings from the router's environment; defaults are those of its launch.sh.
func read(router *corev1.Container) (settings, []string) {
	var problems []string
	value := func(name, otherwise string) string {
		for _, env := range router.Env {
			if env.Name == name && env.ValueFrom != nil {
				problems = append(problems, fmt.Sprintf("%s comes from elsewhere (valueFrom), so it is not known", name))
			} else if env.Name == name && env.Value != "" {
				return env.Value
			}
		}
		return otherwise
	}
	var s settings
	var err error
	s.router = value("WEAVE_HTTP_ADDR", "127.0.0.1:6784")
	s.sleeve = value("WEAVE_NO_FASTDP", "") != ""
	s.policy = value("EXPECT_NPC", "1") != "0"
	s.mtu, err = strconv.Atoi(value("WEAVE_MTU", "0"))
	if err != nil || s.mtu < 0 {
		problems = append(problems, "WEAVE_MTU is no number of bytes")
		s.mtu = 0
	}
	if s.pods, err = netip.ParsePrefix(value("IPALLOC_RANGE", "10.32.0.0/12")); err != nil {
		problems = append(problems, "IPALLOC_RANGE is no CIDR")
	}
	s.pods = s.pods.Masked()
	if strings.Contains(value("EXTRA_ARGS", ""), "--awsvpc") {
		problems = append(problems, "Weave Net routes through the tables of the AWS VPC (--awsvpc), which is not understood")
	}
	if encrypts(router) {
		problems = append(problems, "Weave Net encrypts what nodes send each other (WEAVE_PASSWORD), and after a change nothing would: "+
			"take the password away first if that is what you want")
	}
	return s, problems
}

// encrypts reports whether there is a password, which mostly comes from a Secret.
func encrypts(router *corev1.Container) bool {
	for _, env := range router.Env {
		if env.Name == "WEAVE_PASSWORD" && (env.Value != "" || env.ValueFrom != nil) {
			return true
		}
	}
	return false
}

// UDP ports of the two ways to send frames, what each adds to a packet, and the pods' MTU that the fast
// one has where the user fixed none: router/overlay_switch.go and router/fastdp.go of Weave Net. What
// sleeve adds was measured: the router announces 1438 on links of 1500.
const (
	fastPort, fastOverhead     = 6784, 50
	sleevePort, sleeveOverhead = 6783, 62
	fastMTU                    = 1376
)

// capabilities follow from the settings. The fast data path is VXLAN, but in Open vSwitch and with a VNI for
// every pair of peers: nothing else can use its port, whatever the VNI, so it is not called "vxlan" here.
func capabilities(s settings) cni.Capabilities {
	caps := cni.Capabilities{
		CIDRSource:      "pool",
		Encapsulation:   "fastdp",
		Port:            fastPort,
		Overhead:        fastOverhead,
		MTU:             s.mtu,
		HostLinks:       []string{bridge, "datapath", "vethwe*", "vxlan-6784"},
		ConfName:        confName,
		Policy:          cni.PolicyNone,
		SwitchedPerNode: true,
		Flat:            true,
		OnRequest:       "it was run on two nodes only, and on a busy machine Weave's own routers drop single frames",
	}
	if s.policy {
		caps.Policy = cni.PolicyKubernetes
	}
	if s.sleeve {
		caps.Encapsulation, caps.Port, caps.Overhead = "sleeve", sleevePort, sleeveOverhead
		if s.linkMTU > 0 { // pods may have 65535: what counts is what the router gets through
			caps.MTU = smallest(caps.MTU, s.linkMTU-sleeveOverhead)
			if s.bridgeMTU > caps.MTU {
				caps.LinkMTU = s.bridgeMTU
			}
		}
		return caps
	}
	if s.bridgeMTU > 0 {
		caps.MTU = s.bridgeMTU
	} else if caps.MTU == 0 {
		caps.MTU = fastMTU
	}
	return caps
}

// attachment is how pods hang on a node's bridge, or why they cannot be taken from it. Weave Net gives a sandbox the address that it has
// already, or that was claimed for it; its plugin asks the router for everything. What comes from another node for a pod
// that has left the bridge is routed, and weave-npc, from the first policy of egress on, drops what is not bridged and no pod's
// (npc/controller.go).
func attachment(snapshot *cluster.Snapshot, s settings) (how *step.Attachment, why string) {
	for i := range snapshot.NetworkPolicies {
		policy := &snapshot.NetworkPolicies[i]
		if s.policy && (len(policy.Spec.Egress) > 0 || slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)) {
			return nil, "there is a policy of egress (" + policy.Namespace + "/" + policy.Name + "), and with one weave-npc drops what other nodes themselves send to pods that are not on its bridge any more"
		}
	}
	return &step.Attachment{Conf: []string{confName}, Bridge: bridge, Asks: true,
		Claim: fmt.Sprintf("http://%s/ip/{id}/{address}/%d", s.router, s.pods.Bits())}, ""
}

// measured are the smallest MTUs of the bridges and of the links between nodes, 0 where nobody looked.
func measured(snapshot *cluster.Snapshot) (bridges, links int) {
	for i := range snapshot.Facts {
		facts := &snapshot.Facts[i]
		for _, link := range facts.Links {
			if link.Name == bridge {
				bridges = smallest(bridges, link.MTU)
			}
		}
		for j := range snapshot.Nodes {
			if node := &snapshot.Nodes[j]; node.Name == facts.Node {
				if link := facts.Uplink(node); link != nil {
					links = smallest(links, link.MTU)
				}
			}
		}
	}
	return bridges, links
}

// smallest is the smaller of two sizes of which 0 is none.
func smallest(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// parts lists everything that Weave Net consists of in the order in which it can be deleted. Roles are not
// in a snapshot; their names are upstream's, and deleting what is not there does nothing.
func parts(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) []step.Ref {
	const rbac = "rbac.authorization.k8s.io/v1"
	all := []step.Ref{cni.DaemonSetRef(agent)}
	if snapshot.ConfigMap(agent.Namespace, objects) != nil {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: agent.Namespace, Name: objects})
	}
	all = append(all,
		step.Ref{APIVersion: rbac, Kind: "RoleBinding", Namespace: agent.Namespace, Name: objects},
		step.Ref{APIVersion: rbac, Kind: "Role", Namespace: agent.Namespace, Name: objects})
	return append(all, cni.Rights(agent, objects)...)
}
