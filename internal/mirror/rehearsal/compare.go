package rehearsal

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/policy"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// Coverage is how much of an area of the original the copy has alike, with what it does not.
type Coverage struct {
	Area string `json:"area"`
	// Alike of All are in the copy as in the original.
	Alike int      `json:"alike"`
	All   int      `json:"all"`
	Not   []string `json:"not,omitempty"`
	// Note qualifies the numbers.
	Note string `json:"note,omitempty"`
	// Unevaluated are the policies of the original, and the kinds of them, that Theseus does not evaluate and that are
	// not in the copy.
	Unevaluated []string `json:"unevaluated,omitempty"`
}

func (c *Coverage) add(alike bool, not string) {
	c.All++
	if alike {
		c.Alike++
	} else {
		c.Not = append(c.Not, not)
	}
}

// Side is a cluster with its one network, and the findings of the change on it.
type Side struct {
	Snapshot *cluster.Snapshot
	Network  *cni.Installation
	Findings finding.Result
}

// Covered compares the original with the copy, as it is after it was made and before the change. checks are the IDs of
// all checks; unplaced are the workloads that found no node.
func (c *Copy) Covered(original, copy Side, checks, unplaced []string) []Coverage {
	all := []Coverage{c.nodes(), c.placed(unplaced), settings(original, copy)}
	all = append(all, c.configured(original, copy)...)
	all = append(all, evaluated(original, copy, checks), verdicts(c, original, copy))
	if c.network.All > 0 {
		c.network.Area = "network's objects"
		all = append(all, c.network)
	}
	return all
}

// nodes are the classes of nodes; Make refuses a copy that lacks one.
func (c *Copy) nodes() Coverage {
	covered := Coverage{Area: "classes of nodes"}
	for _, class := range c.Classes {
		covered.add(len(class.Plays) > 0, class.Name)
	}
	return covered
}

// placed are the objects of users that are in the copy; workloads whose pods found no node are not.
func (c *Copy) placed(unplaced []string) Coverage {
	copied := -c.Extra
	for _, object := range c.All() {
		// made up, from what pods refer to
		if !slices.Contains([]string{"Secret", "ConfigMap", "PriorityClass"}, object.GetKind()) {
			copied++
		}
	}
	unlike := 0
	for _, quota := range c.Quotas {
		if len(quota.Unlike) > 0 {
			unlike++
		}
	}
	covered := Coverage{Area: "objects of users", Alike: copied - len(unplaced) - unlike, All: copied,
		Not: slices.Concat(unplaced, c.Unlike())}
	for _, left := range c.Left {
		if !left.network {
			covered.add(false, left.Object+": "+left.Why)
		}
	}
	return covered
}

// settings compares what the two networks and clusters are set to.
func settings(original, copy Side) Coverage {
	covered := Coverage{Area: settingsArea}
	ours, theirs := original.Network.Capabilities, copy.Network.Capabilities
	compare := func(name string, a, b any) {
		covered.add(a == b, fmt.Sprintf("%s: %s in the original, %s in the copy", name, orNone(a), orNone(b)))
	}
	compare("version of the network", original.Network.Version, copy.Network.Version)
	compare("encapsulation", ours.Encapsulation, theirs.Encapsulation)
	compare("VXLAN network", ours.VNI, theirs.VNI)
	compare("port of the encapsulation", ours.Port, theirs.Port)
	compare("MTU of pods", ours.MTU, theirs.MTU)
	compare("source of pod ranges", ours.CIDRSource, theirs.CIDRSource)
	compare("policies", string(ours.Policy), string(theirs.Policy))
	compare("policy agent", original.Network.PolicyAgent != nil, copy.Network.PolicyAgent != nil)
	compare("operator", original.Network.Maker != nil, copy.Network.Maker != nil)
	compare("release of Kubernetes", minor(original.Snapshot.Kubernetes), minor(copy.Snapshot.Kubernetes))
	compare("mode of kube-proxy", proxyMode(original.Snapshot), proxyMode(copy.Snapshot))
	return covered
}

func orNone(value any) string {
	switch value {
	case "", 0:
		return "none"
	case true:
		return "yes"
	case false:
		return "no"
	}
	return fmt.Sprint(value)
}

// minor is a version without its last part: v1.36 of v1.36.3.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func proxyMode(s *cluster.Snapshot) string {
	proxy, err := (&check.Pass{Snapshot: s}).KubeProxy()
	if err != nil {
		return "not known"
	}
	if proxy.Mode == "" {
		return "iptables"
	}
	return proxy.Mode
}

// evaluated compares the checks: one is alike if its worst finding is as severe on the copy as on the original. One
// that could not run says nothing, and is not alike.
func evaluated(original, copy Side, checks []string) Coverage {
	covered := Coverage{Area: "checks"}
	for _, id := range checks {
		before, after := said(original.Findings, id), said(copy.Findings, id)
		covered.add(before == after && before != notChecked,
			fmt.Sprintf("%s: %s on the original, %s on the copy", id, before, after))
	}
	return covered
}

const notChecked = "not checked"

// said is the result of a check in a word.
func said(result finding.Result, id string) string {
	for _, one := range result.NotChecked {
		if one.ID == id {
			return notChecked
		}
	}
	worst := "nothing"
	for _, severity := range []finding.Severity{finding.Info, finding.Warn, finding.Block} {
		for _, one := range result.Findings {
			if one.ID == id && one.Severity == severity {
				worst = string(severity)
			}
		}
	}
	return worst
}

// mostPairs bounds the verdicts that are compared.
const mostPairs = 20_000

// verdicts compares what policies say about connections between workloads: from one pod of each to one of each other
// one, on every port that the containers declare. Two verdicts that depend are not alike: what they depend on is not
// known of either.
func verdicts(c *Copy, original, copy Side) (covered Coverage) {
	covered.Area = "policy verdicts"
	ours, theirs := running(original.Snapshot), running(copy.Snapshot)
	profile, theirProfile := policy.ProfileOf(original.Network), policy.ProfileOf(copy.Network)
	before, after := policy.Build(original.Snapshot, profile, profile),
		policy.Build(copy.Snapshot, theirProfile, theirProfile)
	for _, gap := range before.Unevaluated() {
		covered.Not = append(covered.Not, fmt.Sprintf("%s: %s", gap.Policy, gap.What))
		if !c.has(gap.Policy) {
			covered.Unevaluated = append(covered.Unevaluated, gap.Policy.String())
		}
	}
	var names []string
	skipped := 0
	defer func() {
		if skipped > 0 && covered.Note == "" {
			covered.Note = cluster.Count(skipped, "connection") + " could not be compared"
		}
	}()
	for _, w := range c.Workloads {
		if name := w.Kind + " " + w.Namespace + "/" + w.Name; ours[name] != nil && theirs[name] != nil {
			names = append(names, name)
		}
	}
	for _, from := range names {
		for _, to := range names {
			for _, port := range portsOf(ours[to]) {
				if from == to {
					continue
				}
				if covered.All == mostPairs {
					covered.Note = fmt.Sprintf("only the first %d connections were compared", mostPairs)
					return covered
				}
				a, errA := before.Verdict(policy.Before, key(ours[from]), key(ours[to]), port)
				b, errB := after.Verdict(policy.Before, key(theirs[from]), key(theirs[to]), port)
				if errA != nil || errB != nil { // a pod that policies do not know, such as one without an address
					skipped++
					continue
				}
				covered.add(a == b && a != policy.Depends, fmt.Sprintf("%s to %s, %s: %s in the original, %s in "+
					"the copy", from, to, port, a, b))
			}
		}
	}
	return covered
}

// has reports whether a policy of the original is in the copy. The kind of a subject may have its API group.
func (c *Copy) has(policy finding.Subject) bool {
	kind, _, _ := strings.Cut(policy.Kind, ".")
	return slices.ContainsFunc(c.Objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetNamespace() == policy.Namespace && o.GetName() == policy.Name
	})
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// running is a running pod of each workload.
func running(s *cluster.Snapshot) map[string]*corev1.Pod {
	owner, all := s.Owners(), map[string]*corev1.Pod{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		by := owner(pod)
		name := by.Kind + " " + by.Namespace + "/" + by.Name
		if pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning &&
			(all[name] == nil || pod.Name < all[name].Name) {
			all[name] = pod
		}
	}
	return all
}

// portsOf are the ports that a pod's containers declare, each once.
func portsOf(pod *corev1.Pod) []policy.Port {
	seen := map[policy.Port]bool{}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			protocol := port.Protocol
			if protocol == "" {
				protocol = corev1.ProtocolTCP
			}
			seen[policy.Port{Protocol: protocol, Number: int(port.ContainerPort)}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b policy.Port) int {
		return strings.Compare(a.String(), b.String())
	})
}
