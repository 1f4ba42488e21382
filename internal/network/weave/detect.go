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

// agentIn returns the DaemonSet that runs the router.
func agentIn(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	for i := range snapshot.DaemonSets {
		if router(&snapshot.DaemonSets[i]) != nil {
			return &snapshot.DaemonSets[i]
		}
	}
	return nil
}

// router returns the container that runs the router, with any image registry.
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
		Readings:     readings(s),
	}
}

// readings are the frames that the router forwards itself, without the fast data path: net/pcap.go of Weave Net.
func readings(s settings) []step.Reading {
	if !s.sleeve {
		return nil
	}
	at := s.router
	if port, every := strings.CutPrefix(strings.TrimPrefix(at, "0.0.0.0"), ":"); every {
		at = "127.0.0.1:" + port
	}
	return []step.Reading{{URL: "http://" + at + "/report", JSON: true, Counters: map[string]string{
		"weave.PacketsDropped":  "Router.CaptureStats.PacketsDropped",
		"weave.PacketsReceived": "Router.CaptureStats.PacketsReceived",
	}, Carried: []string{"weave.PacketsReceived"}}}
}

// settings are the user's settings (environment variables), and facts from the nodes.
type settings struct {
	pods      netip.Prefix
	router    string // address of the router's API, on each node
	sleeve    bool   // no Open vSwitch data path: the router forwards frames in UDP
	policy    bool
	mtu       int // of the pods, if the user set it
	bridgeMTU int // smallest of the bridges, if there are facts about nodes
	linkMTU   int // smallest of the links between nodes, if there are facts about nodes
}

func (s settings) ranges() []string {
	if !s.pods.IsValid() {
		return nil
	}
	return []string{s.pods.String()}
}

// read reads the settings from the router's environment; the defaults are those of its launch.sh.
func read(router *corev1.Container) (settings, []string) {
	var problems []string
	value := func(name, otherwise string) string {
		for _, env := range router.Env {
			if env.Name == name && env.ValueFrom != nil {
				problems = append(problems,
					fmt.Sprintf("the value of %s comes from another object (valueFrom), so Theseus does not know "+
						"it", name))
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
		problems = append(problems, "WEAVE_MTU is not a number of bytes")
		s.mtu = 0
	}
	if s.pods, err = netip.ParsePrefix(value("IPALLOC_RANGE", "10.32.0.0/12")); err != nil {
		problems = append(problems, "IPALLOC_RANGE is no CIDR")
	}
	s.pods = s.pods.Masked()
	if strings.Contains(value("EXTRA_ARGS", ""), "--awsvpc") {
		problems = append(problems,
			"Weave Net uses the route tables of the AWS VPC (--awsvpc), which Theseus does not support")
	}
	if encrypts(router) {
		problems = append(problems,
			"Weave Net encrypts the traffic between nodes (WEAVE_PASSWORD), and after a change this traffic would "+
				"not be "+
				"encrypted: if you accept that, remove the password first")
	}
	return s, problems
}

// encrypts reports whether a password is set, usually from a Secret.
func encrypts(router *corev1.Container) bool {
	for _, env := range router.Env {
		if env.Name == "WEAVE_PASSWORD" && (env.Value != "" || env.ValueFrom != nil) {
			return true
		}
	}
	return false
}

// UDP ports and overhead of the two ways to send frames, and the default MTU of pods with the fast one:
// router/overlay_switch.go and router/fastdp.go of Weave Net. The overhead of sleeve was measured: the router announces
// 1438 on links of 1500.
const (
	fastPort, fastOverhead     = 6784, 50
	sleevePort, sleeveOverhead = 6783, 62
	fastMTU                    = 1376
)

// capabilities depend on the settings. The fast data path is VXLAN, but in Open vSwitch and with a VNI for every pair
// of peers: no other VXLAN can use its port, whatever the VNI, so it is not called "vxlan" here.
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
		OnRequest:       "this was only run on two nodes, and on a busy machine Weave's routers drop single frames",
	}
	if s.policy {
		caps.Policy = cni.PolicyKubernetes
	}
	if s.sleeve {
		caps.Encapsulation, caps.Port, caps.Overhead = "sleeve", sleevePort, sleeveOverhead
		if s.linkMTU > 0 { // pods may have 65535: the limit is what the router can send
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

// attachment says how pods are attached to a node's bridge, or why they cannot be detached. Weave Net's plugin asks the
// router, which gives a sandbox the address that it already has or that was claimed for it. Traffic from another node
// to a pod that has left the bridge is routed. As soon as there is an egress policy, weave-npc drops traffic that is
// neither bridged nor from a pod (npc/controller.go).
func attachment(snapshot *cluster.Snapshot, s settings) (how *step.Attachment, why string) {
	for i := range snapshot.NetworkPolicies {
		policy := &snapshot.NetworkPolicies[i]
		if s.policy && (len(policy.Spec.Egress) > 0 ||
			slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)) {
			return nil, "an egress policy exists (" + policy.Namespace + "/" + policy.Name + "), and then " +
				"weave-npc drops " +
				"packets from other nodes to pods that have left its bridge"
		}
	}
	return &step.Attachment{Conf: []string{confName}, Bridge: bridge, Asks: true,
		Claim: fmt.Sprintf("http://%s/ip/{id}/{address}/%d", s.router, s.pods.Bits())}, ""
}

// measured returns the smallest MTUs of the bridges and of the links between nodes; 0 if there are no facts about
// nodes.
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

// smallest returns the smaller of two sizes; 0 means unknown.
func smallest(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// parts lists Weave Net's objects in the order in which they can be deleted. Roles are not in a snapshot; their names
// are upstream's, and deleting an object that does not exist is harmless.
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
