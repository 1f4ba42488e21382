package cilium

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Install implements cni.Driver. The user's manifest is the output of `helm template`. The joint form runs the agent
// only on labelled nodes. It writes its CNI configuration under a name that no runtime reads, and leaves other
// configurations alone. The final form is the user's own, but for the range and the port of its tunnels.
func (Driver) Install(request cni.Request) (*cni.Target, error) {
	if _, err := cni.PodRange("Cilium", request.PodCIDR); err != nil {
		return nil, err
	}
	if request.Takeover != nil {
		return nil, cni.Unadoptable(
			"Cilium cannot give a pod the address that the pod requests, so it cannot take over running pods")
	}
	created := defines(request.Manifest)
	if err := undefined(request.Defined, created); err != nil {
		return nil, err
	}
	final, err := understand(request.Manifest)
	if err != nil {
		return nil, err
	}
	kept := final.fit(request)
	joint, err := understand(append(final.definitions, final.objects...))
	if err != nil {
		return nil, err
	}
	conf := cni.Staged(final.settings().confName(), "00-cilium.conflist", request.Source)
	joint.stage(request, conf)
	cni.Label(joint.definitions)
	cni.Label(joint.objects)
	cni.Label(final.objects)
	cni.Label(final.policies)
	image, _ := cni.FindContainer(joint.agent, "containers", container)["image"].(string)
	target := &cni.Target{
		Definitions: joint.definitions,
		Objects:     joint.objects,
		Conf:        conf,
		Kept:        kept,
		Policies:    final.policies,
		Installation: cni.Installation{
			CNI: "cilium", Version: cluster.ImageOf(image).Tag, Agent: step.RefOf(joint.agent),
			Selector: cni.SelectorText(joint.agent), PodCIDRs: []string{request.PodCIDR},
			ConfFolder:   cni.HostFolderIn(joint.agent, path.Clean(confDir)),
			PluginFolder: cni.HostFolderIn(joint.agent, pluginDir),
			Capabilities: joint.settings().capabilities(), Defines: created,
			Parts:   cni.Parts(final.policies, joint.objects, joint.definitions),
			Untried: untriedFrom(request.Source), NeverRun: final.settings().neverRun(),
			Defect: final.settings().stale(cluster.ImageOf(image).Tag),
		},
		Final:    append(cni.Finish(joint.objects, final.objects), joint.restarted()...),
		HandOver: cni.HandOver(joint.definitions, final.objects),
	}
	if request.Source != nil && ownPolicies(request.Source) {
		target.Translation = "theseus policy translate --from " + request.Source.CNI + " --to cilium -o FILE"
	}
	caps := &target.Installation.Capabilities
	caps.ConfName, caps.Marks = final.settings().confName(), marks(request.Source)
	caps.NoHostPorts = true // its agent serves them only in place of kube-proxy
	// before, programs on the node's own interfaces outlive the folder in which Cilium pins them
	caps.Kernel = "6.6"
	return target, nil
}

// manifest is the parsed manifest of the user. Everything in it is a copy.
type manifest struct {
	definitions, objects []unstructured.Unstructured
	// policies are of Cilium's own kinds, whose CRDs its operator creates.
	policies []unstructured.Unstructured
	// agent, config and operator are in objects; operator may be nil.
	agent, config, operator *unstructured.Unstructured
}

// sort finds the parts of the chart's output.
func sort(documents []unstructured.Unstructured) (*manifest, error) {
	m := &manifest{}
	for i := range documents {
		switch object := documents[i].DeepCopy(); {
		case object.GetKind() == "CustomResourceDefinition":
			m.definitions = append(m.definitions, *object)
		case isPolicy(object):
			m.policies = append(m.policies, *object)
		default:
			m.objects = append(m.objects, *object)
		}
	}
	cni.SortForApply(m.objects)
	for i := range m.objects {
		switch object := &m.objects[i]; {
		case object.GetKind() == "DaemonSet" && cni.FindContainer(object, "containers", container) != nil:
			m.agent = object
		case object.GetKind() == "ConfigMap" && object.GetName() == configName:
			m.config = object
		case object.GetKind() == "Deployment" && cni.FindContainer(object, "containers", operatorName) != nil:
			m.operator = object
		}
	}
	if m.agent == nil || m.config == nil {
		return nil, refuse("the manifest contains no DaemonSet with a container "+container+
			", or no ConfigMap "+configName,
			"give the output of the chart: helm template cilium cilium/cilium -n kube-system --values VALUES")
	}
	return m, nil
}

// understand parses a manifest of a Cilium that runs next to another network, or refuses it with a reason.
func understand(documents []unstructured.Unstructured) (*manifest, error) {
	m, err := sort(documents)
	if err != nil {
		return nil, err
	}
	s := m.settings()
	hook, _, _ := unstructured.NestedStringSlice(cni.FindContainer(m.agent, "containers", container), "lifecycle",
		"postStart", "exec", "command")
	switch ipam := s["ipam"]; {
	case strings.Contains(strings.Join(hook, " "), installScript):
		return nil, refuse("Cilium before 1.14 takes over a node as soon as its agent starts there: a script ("+
			installScript+") writes the CNI configuration, and deletes or renames others, staged or not",
			"give the manifest of a newer release")
	case ipam != "" && ipam != "cluster-pool":
		return nil, refuse("Cilium would not use a range of its own (ipam "+ipam+
			"), and could assign addresses that the source's pods have",
			"set ipam.mode=cluster-pool and a free range: --set ipam.mode=cluster-pool")
	case s.replaces():
		return nil, refuse("Cilium would replace kube-proxy on a node as soon as its agent starts there "+
			"(kube-proxy-replacement "+s["kube-proxy-replacement"]+")",
			"set kubeProxyReplacement=false for the change of networks, and replace kube-proxy afterwards")
	case s["cni-chaining-mode"] != "" && s["cni-chaining-mode"] != "none":
		return nil, refuse("Cilium would be chained behind another network (cni-chaining-mode "+s["cni-chaining-mode"]+
			"), and would not replace it", "set cni.chainingMode=none")
	}
	if err := s.unfit(); err != nil {
		return nil, err
	}
	if err := m.strangers(); err != nil {
		return nil, err
	}
	for i := range m.policies {
		if rules := l7(&m.policies[i]); len(rules) > 0 {
			return nil, refuse(fmt.Sprintf("%s %s has L7 rules (%s), for which Cilium sends packets through its "+
				"proxy; Theseus was never run with that next to another network", m.policies[i].GetKind(),
				m.policies[i].GetName(), strings.Join(rules, ", ")),
				"create this policy after the change of networks, when all pods are on Cilium")
		}
	}
	return m, nil
}

// isPolicy reports whether an object is a policy of Cilium's own, such as theseus policy translate writes.
func isPolicy(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().Group == group &&
		slices.Contains([]string{"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"}, object.GetKind())
}

func (m *manifest) settings() settings {
	data, _, _ := unstructured.NestedStringMap(m.config.Object, "data")
	if data == nil {
		return settings{}
	}
	return data
}

// fit makes the permanent changes that keep the two networks apart: its range, and the port of its tunnels. It returns
// them as values of the chart.
func (m *manifest) fit(request cni.Request) (kept []string) {
	s := m.settings()
	if source := request.Source; source != nil {
		if c := source.Capabilities; c.Encapsulation == s.mode() && c.Port == s.port() {
			// permanently, since agents with different ports do not reach each other
			s["tunnel-port"] = strconv.Itoa(c.Port + 1)
			kept = append(kept, "tunnelPort: "+s["tunnel-port"])
		}
	}
	if s["cluster-pool-ipv4-cidr"] != request.PodCIDR {
		s["cluster-pool-ipv4-cidr"] = request.PodCIDR
		kept = append(kept, "ipam.operator.clusterPoolIPv4PodCIDRList: ["+request.PodCIDR+"]")
	}
	m.set(s)
	return kept
}

// stage makes the joint form.
func (m *manifest) stage(request cni.Request, conf step.ConfArgs) {
	s := m.settings()
	s["cni-exclusive"] = "false"
	s["write-cni-conf-when-ready"] = confDir + conf.Staged
	s["unmanaged-pod-watcher-interval"] = "0" // otherwise the operator deletes pods of the source
	// otherwise the operator keeps pods of the source off a node whose agent is not ready
	s["set-cilium-node-taints"] = "false"
	// Otherwise its chains come first, and accept traffic before the source's policy agent sees it.
	s["prepend-iptables-chains"] = "false"
	// Otherwise an agent that starts deletes what makes the source's pods known to it.
	s["enable-stale-cilium-endpoint-cleanup"] = "false"
	if source := request.Source; source != nil && source.Capabilities.MTU > 0 && s["mtu"] == "" {
		// Otherwise the agent takes the smallest MTU of all links, and the source's tunnel is one of them.
		s["mtu"] = strconv.Itoa(source.Capabilities.MTU + source.Capabilities.Overhead)
	}
	m.set(s)
	for i := range m.objects {
		if m.objects[i].GetKind() == "DaemonSet" { // its proxy needs the agent of its node
			only(&m.objects[i], request.NodeLabel)
		}
	}
	// it reads its settings only when it starts: without this mark, the final form starts it again
	if m.operator != nil {
		_ = unstructured.SetNestedField(m.operator.Object, "joint", "spec", "template",
			"metadata", "annotations", formKey)
	}
	agent := cni.FindContainer(m.agent, "containers", container)
	unstructured.RemoveNestedField(agent, "lifecycle", "preStop") // it deletes the CNI configuration
	if lifecycle, ok := agent["lifecycle"].(map[string]any); ok && len(lifecycle) == 0 {
		delete(agent, "lifecycle")
	}
}

// formKey is an annotation of the operator's pods in the joint form.
const formKey = "theseus.dev/form"

// restarted waits for the operator in its final form, before the agents restart.
func (m *manifest) restarted() []step.Action {
	if m.operator == nil {
		return nil
	}
	ref := step.RefOf(m.operator)
	return []step.Action{{ID: "final-operator", Do: step.Wait{
		Condition: step.Condition{Is: step.Rolled{Ref: ref}}},
		Title: "wait until " + ref.String() + " runs with your settings", Timeout: step.Duration(5 * time.Minute)}}
}

// set replaces the settings. understand has checked that the path leads through maps.
func (m *manifest) set(s settings) {
	_ = unstructured.SetNestedStringMap(m.config.Object, s, "data")
}

func refuse(message, hint string) error { return &cni.Refusal{Message: message, Hint: hint} }
