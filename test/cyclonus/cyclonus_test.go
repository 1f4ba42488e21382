// Package cyclonus holds internal/network/policy to an independent implementation: cyclonus generates cases (policies,
// and changes of namespaces and pods, step by step) and simulates their verdicts.
package cyclonus

import (
	"fmt"
	"maps"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/policy"
)

// cases is how many cyclonus v0.5.6 generates.
const cases = 230

func TestCases(t *testing.T) {
	all := generator.NewTestCaseGenerator(true, addressOf("z", "c"), []string{"x", "y", "z"},
		nil, nil).GenerateAllTestCases()
	if len(all) != cases {
		t.Errorf("%d cases, want %d", len(all), cases)
	}
	for _, profile := range []struct {
		policy.Profile
		// deviation is the one that explains verdicts which differ, and explained how many those are.
		deviation string
		explained int
	}{
		{policy.Profile{CNI: "kube-router", Dialect: policy.Kubernetes}, "", 0},
		{policy.Profile{CNI: "calico", Dialect: policy.Calico}, "", 0},
		{policy.Profile{CNI: "cilium", Dialect: policy.Cilium}, "cilium/cidr-never-selects-pods", 238},
	} {
		t.Run(profile.CNI, func(t *testing.T) {
			c := comparison{t: t, profile: profile.Profile, deviation: profile.deviation}
			for i, one := range all {
				c.run(i, one)
			}
			t.Logf("%d cases, %d steps, %d verdicts, %d explained by %q",
				len(all), c.steps, c.verdicts, c.explained, profile.deviation)
			if c.explained != profile.explained {
				t.Errorf("%d verdicts are explained by %q, want %d", c.explained, profile.deviation, profile.explained)
			}
		})
	}
}

type comparison struct {
	t                          *testing.T
	profile                    policy.Profile
	deviation                  string
	steps, verdicts, explained int
}

// state is what the steps of a case have made so far.
type state struct {
	resources *probe.Resources
	policies  map[string]*networkingv1.NetworkPolicy
}

func (c *comparison) run(number int, one *generator.TestCase) {
	s := state{resources: resources(), policies: map[string]*networkingv1.NetworkPolicy{}}
	for i, step := range one.Steps {
		for _, action := range step.Actions {
			if err := s.apply(action); err != nil {
				c.t.Fatalf("case %d, step %d: %v", number, i, err)
			}
		}
		c.steps++
		c.compare(fmt.Sprintf("case %d (%s), step %d", number, one.Description, i), s, step.Probe)
	}
}

func (s *state) apply(a *generator.Action) (err error) {
	switch {
	case a.CreatePolicy != nil:
		s.policies[a.CreatePolicy.Policy.Namespace+"/"+a.CreatePolicy.Policy.Name] = a.CreatePolicy.Policy
	case a.UpdatePolicy != nil:
		s.policies[a.UpdatePolicy.Policy.Namespace+"/"+a.UpdatePolicy.Policy.Name] = a.UpdatePolicy.Policy
	case a.DeletePolicy != nil:
		delete(s.policies, a.DeletePolicy.Namespace+"/"+a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		s.resources, err = s.resources.CreateNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		s.resources, err = s.resources.UpdateNamespaceLabels(a.SetNamespaceLabels.Namespace,
			a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		s.resources, err = s.resources.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.CreatePod != nil:
		s.resources, err = s.resources.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
		if err == nil {
			var pod *probe.Pod
			pod, err = s.resources.GetPod(a.CreatePod.Namespace, a.CreatePod.Pod)
			pod.IP = "10.1.9.9"
		}
	case a.SetPodLabels != nil:
		s.resources, err = s.resources.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	case a.DeletePod != nil:
		s.resources, err = s.resources.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	case a.ReadNetworkPolicies != nil: // they are in s.policies already
	default:
		err = fmt.Errorf("an action that is not known")
	}
	return err
}

// compare compares all verdicts of a step.
func (c *comparison) compare(name string, s state, config *generator.ProbeConfig) {
	var policies []*networkingv1.NetworkPolicy
	for p := range maps.Values(s.policies) {
		policies = append(policies, p)
	}
	builder := &probe.JobBuilder{}
	table := probe.NewSimulatedRunner(matcher.BuildNetworkPolicies(true, policies),
		builder).RunProbeForConfig(config, s.resources)
	model := policy.Build(s.snapshot(), c.profile, c.profile)
	for _, key := range table.Wrapped.Keys() {
		for _, job := range table.Get(key.From, key.To).JobResults {
			if job.Combined != probe.ConnectivityAllowed && job.Combined != probe.ConnectivityBlocked {
				continue // the pod has no such port
			}
			want := policy.Deny
			if job.Combined == probe.ConnectivityAllowed || key.From == key.To { // a pod always reaches itself
				want = policy.Allow
			}
			port := policy.Port{Protocol: job.Job.Protocol, Number: job.Job.ResolvedPort}
			got, err := model.Verdict(policy.Before, key.From, key.To, port)
			if err != nil {
				c.t.Fatalf("%s: %v", name, err)
			}
			c.verdicts++
			switch {
			case got == want:
			case c.deviation != "" && want == policy.Allow && byAddress(policies):
				c.explained++
			default:
				c.t.Errorf("%s: %s to %s, %s: %s, cyclonus says %s", name, key.From, key.To, port, got, want)
			}
		}
	}
}

// byAddress reports whether any policy names pods by their addresses.
func byAddress(policies []*networkingv1.NetworkPolicy) bool {
	for _, p := range policies {
		for _, rule := range p.Spec.Ingress {
			for _, peer := range rule.From {
				if peer.IPBlock != nil {
					return true
				}
			}
		}
		for _, rule := range p.Spec.Egress {
			for _, peer := range rule.To {
				if peer.IPBlock != nil {
					return true
				}
			}
		}
	}
	return false
}

// resources are cyclonus' own: three namespaces of three pods, each with ports 80 and 81 of every protocol.
func resources() *probe.Resources {
	r := &probe.Resources{Namespaces: map[string]map[string]string{}}
	for _, namespace := range []string{"x", "y", "z"} {
		r.Namespaces[namespace] = map[string]string{"ns": namespace}
		for _, name := range []string{"a", "b", "c"} {
			pod := probe.NewDefaultPod(namespace, name, []int{80, 81},
				[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, false, "")
			pod.IP = addressOf(namespace, name)
			r.Pods = append(r.Pods, pod)
		}
	}
	return r
}

func addressOf(namespace, name string) string {
	return fmt.Sprintf("10.1.%d.%d", namespace[0]-'w', name[0]-'a'+10)
}

func (s state) snapshot() *cluster.Snapshot {
	snapshot := &cluster.Snapshot{}
	for name, labels := range s.resources.Namespaces {
		snapshot.Namespaces = append(snapshot.Namespaces,
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for _, pod := range s.resources.Pods {
		object := pod.KubePod()
		object.Status.PodIP = pod.IP
		snapshot.Pods = append(snapshot.Pods, *object)
	}
	for _, p := range s.policies {
		snapshot.NetworkPolicies = append(snapshot.NetworkPolicies, *p)
	}
	return snapshot
}
