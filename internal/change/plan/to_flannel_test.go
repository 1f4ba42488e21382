package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// calicoToFlannel is a cluster as it was on Calico, whose pods have addresses of another range than the nodes' own.
func calicoToFlannel(t testing.TB) *request {
	r := flannelToCalico(t)
	r.snapshot = cnitest.Golden(t, "calico")
	for i := range r.snapshot.Nodes {
		ranged(&r.snapshot.Nodes[i], fmt.Sprintf("10.244.%d.0/24", i))
	}
	r.change.To, r.change.Manifest, r.change.PodCIDR = "flannel", "flannel.yaml", "10.244.0.0/16"
	r.options.Manifest = cnitest.Fixture(t, "flannel-manifest.yaml")
	return r
}

func ranged(node *corev1.Node, cidr string) {
	node.Spec.PodCIDR, node.Spec.PodCIDRs = cidr, []string{cidr}
}

// fitting is that cluster, when each pod has an address of its node's own range.
func fitting(t testing.TB) *request {
	r := calicoToFlannel(t)
	for i, cidr := range []string{"198.19.10.0/24", "198.19.4.0/24"} {
		ranged(&r.snapshot.Nodes[i], cidr)
	}
	for i := range r.snapshot.Pods {
		if status := &r.snapshot.Pods[i].Status; status.PodIP == "198.19.4.1" { // the bridge's
			status.PodIP = "198.19.4.9"
		}
	}
	return r
}

// TestToFlannel: the pair is computed. The runbook tells why pods are created again.
func TestToFlannel(t *testing.T) {
	r := calicoToFlannel(t)
	r.change.Strategy = "adopt" // or else the range
	p := mustMake(t, r)
	golden(t, "to-flannel-runbook.txt", []byte(plan.Runbook(p)))
	if p.Strategy != "recreate" || p.Target.PodCIDRs[0] != "10.244.0.0/16" ||
		p.Target.Capabilities.ConfName != "10-flannel.conflist" {
		t.Errorf("strategy %s to %+v", p.Strategy, p.Target)
	}
}

// TestVerifyToFlannelOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyToFlannelOrder(t *testing.T) {
	mustNeedOrder(t, mustMake(t, calicoToFlannel(t)), nil)
}

// TestToFlannelDecides: what stands against adoption, pod by pod, and against a range.
func TestToFlannelDecides(t *testing.T) {
	pod := func(r *request, prefix string) *corev1.Pod {
		return &r.snapshot.Pods[slices.IndexFunc(r.snapshot.Pods, func(p corev1.Pod) bool {
			return strings.HasPrefix(p.Name, prefix)
		})]
	}
	for _, test := range []struct {
		name   string
		from   func(testing.TB) *request
		change func(*request)
		words  string // of the refusal
		hint   string
	}{
		{"no pod fits", calicoToFlannel, func(r *request) { r.change.PodCIDR = "" },
			"flannel assigns pods addresses from their node's range, but 6 of 6 pods on calico have others: " +
				"default/db-59f6b67d8d-8twhn (198.19.10.195 on node-1, whose range is 10.244.0.0/24); ",
			"recreate the pods instead: set --pod-cidr to the range that contains the nodes' own ranges " +
				"(kube-controller-manager's --cluster-cidr), which contains 10.244.0.0/23"},
		{"one pod has another node's", fitting, func(r *request) {
			r.change.PodCIDR, pod(r, "web-847f49cc4d-7l4cr").Status.PodIP = "", "198.19.10.7"
		},
			"but 1 of 6 pods on calico have others: default/web-847f49cc4d-7l4cr (198.19.10.7 on node-2, whose range " +
				"is 198.19.4.0/24)", "nor can they be recreated next to it: flannel would use the nodes' own ranges"},
		{"one pod has the bridge's", fitting, func(r *request) {
			r.change.PodCIDR, pod(r, "web-847f49cc4d-7l4cr").Status.PodIP = "", "198.19.4.1"
		},
			"(198.19.4.1 on node-2, which is an address of the network's own)",
			"nor can they be recreated next to it: flannel would use the nodes' own ranges"},
		{"one pod has the one for broadcasts", fitting, func(r *request) {
			r.change.PodCIDR, pod(r, "web-847f49cc4d-7l4cr").Status.PodIP = "", "198.19.4.255"
		},
			"(198.19.4.255 on node-2, which is an address of the network's own)",
			"nor can they be recreated next to it: flannel would use the nodes' own ranges"},
		{"a node has no range", fitting, func(r *request) { ranged(&r.snapshot.Nodes[1], ""); r.change.PodCIDR = "" },
			"on node-2, which has no range)",
			"nor can they be recreated next to it: flannel would use the nodes' own ranges"},
		{"all fit", fitting, func(r *request) { r.change.PodCIDR = "" },
			"running pods cannot be taken from calico: unmodified, its agent replaces",
			"nor can they be recreated next to it: flannel would use the nodes' own ranges"},
		{"all fit, and a range is given", fitting, func(r *request) { r.change.PodCIDR = "198.19.0.0/16" },
			"the target's range 198.19.0.0/16 overlaps the source's range 198.19.0.0/20", "theseus mirror"},
		{"a range that is not the nodes'", calicoToFlannel, func(r *request) { r.change.PodCIDR = "10.96.0.0/16" },
			"that of node node-1, 10.244.0.0/24, is not within 10.96.0.0/16", "which contains 10.244.0.0/23"},
		{"a range of some of the nodes", calicoToFlannel, func(r *request) { r.change.PodCIDR = "10.244.0.0/24" },
			"that of node node-2, 10.244.1.0/24, is not within 10.244.0.0/24", "which contains 10.244.0.0/23"},
		{"a policy of Calico's", calicoToFlannel, func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t,
				[]byte("apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: deny}\n"))...)
		}, "users wrote 1 object that would be deleted with calico: GlobalNetworkPolicy deny", "kubectl get"},
		{"a node without a range", calicoToFlannel, func(r *request) { ranged(&r.snapshot.Nodes[1], "") },
			"and node node-2 has none", "--allocate-node-cidrs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := test.from(t)
			test.change(r)
			if hint := mustRefuse(t, r, test.words); !strings.Contains(hint, test.hint) {
				t.Errorf("the hint is %q, without %q", hint, test.hint)
			}
		})
	}
}

// TestToFlannelLeavesNothing: what Calico is goes, its rights and definitions too, and nothing but flannel gets the
// name that sorts first while both are there.
func TestToFlannelLeavesNothing(t *testing.T) {
	p := mustMake(t, calicoToFlannel(t))
	gone := map[string]bool{}
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			if do, is := a.Do.(step.Delete); is {
				gone[do.Ref.String()] = true
			}
		}
	}
	for _, want := range []string{"DaemonSet/kube-system/calico-node", "Deployment/kube-system/calico-kube-controllers",
		"ConfigMap/kube-system/calico-config", "ClusterRole/calico-cni-plugin", "ClusterRoleBinding/calico-node",
		"ServiceAccount/kube-system/calico-kube-controllers",
		"CustomResourceDefinition/ippools.crd.projectcalico.org"} {
		if !gone[want] {
			t.Errorf("%s stays", want)
		}
	}
}

// TestToFlannelByChart: what flannel's chart makes does as a manifest, once the namespace is there, which helm would
// make.
func TestToFlannelByChart(t *testing.T) {
	r := calicoToFlannel(t)
	r.options.Manifest = cnitest.Fixture(t, "charts/flannel-v0.28.4.yaml")
	if hint := mustRefuse(t, r, "is in namespace kube-flannel, which neither the cluster nor the "+
		"manifest has"); !strings.Contains(hint, "kubectl create namespace kube-flannel") {
		t.Errorf("the hint is %q", hint)
	}
	space := corev1.Namespace{}
	space.Name = "kube-flannel"
	r.snapshot.Namespaces = append(r.snapshot.Namespaces, space)
	p := mustMake(t, r)
	if p.Target.Version != "v0.28.4" || p.Target.Agent.Namespace != "kube-flannel" {
		t.Errorf("%+v", p.Target)
	}
	for _, s := range p.Steps {
		for _, a := range slices.Concat(s.Actions, s.Undo) {
			if a.Op() == step.OpDelete && a.Ref().Kind == "Namespace" ||
				a.Op() == step.OpApply && a.Ref().Kind == "Namespace" && a.Ref().Name == "kube-flannel" {
				t.Errorf("step %s: %s", s.ID, a.Title)
			}
		}
	}
}
