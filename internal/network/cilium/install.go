package cilium

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Install implements cni.Driver: it describes, for checks, how Cilium would run together with the source. The user's manifest
// is the output of `helm template`. The joint form runs the agent only on labelled nodes and on its own port. The agent
// writes its CNI configuration under a name that no runtime reads, and leaves other configurations alone.
func (Driver) Install(request cni.Request) (*cni.Target, error) {
	if _, err := cni.PodRange("Cilium", request.PodCIDR); err != nil {
		return nil, err
	}
	if request.Takeover != nil {
		return nil, cni.Unadoptable("Cilium gives no pod an address of the pod's choice, so it cannot take over running pods")
	}
	m, err := understand(request.Manifest)
	if err != nil {
		return nil, err
	}
	conf := m.fit(request)
	cni.Label(m.definitions)
	cni.Label(m.objects)
	s := m.settings()
	image, _ := cni.FindContainer(m.agent, "containers", container)["image"].(string)
	version := cluster.ImageOf(image).Tag
	target := &cni.Target{
		Definitions: m.definitions,
		Objects:     m.objects,
		Conf:        conf,
		Installation: cni.Installation{
			CNI: "cilium", Version: version, Agent: step.RefOf(m.agent), Selector: cni.SelectorText(m.agent),
			PodCIDRs: []string{request.PodCIDR}, Capabilities: s.capabilities(), Untried: untried,
		},
	}
	target.Installation.Capabilities.ConfName = conf.Active
	for _, list := range [][]unstructured.Unstructured{m.objects, m.definitions} {
		for i := range slices.Backward(list) {
			target.Installation.Parts = append(target.Installation.Parts, step.RefOf(&list[i]))
		}
	}
	return target, nil
}

// manifest is the parsed manifest of the user. Everything in it is a copy.
type manifest struct {
	definitions, objects []unstructured.Unstructured
	agent, config        *unstructured.Unstructured // in objects
}

func understand(documents []unstructured.Unstructured) (*manifest, error) {
	m := &manifest{}
	for i := range documents {
		if object := documents[i].DeepCopy(); object.GetKind() == "CustomResourceDefinition" {
			m.definitions = append(m.definitions, *object)
		} else {
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
		}
	}
	if m.agent == nil || m.config == nil {
		return nil, refuse("the manifest holds no DaemonSet with a container "+container+", or no ConfigMap "+configName,
			"give what the chart makes: helm template cilium cilium/cilium -n kube-system --values VALUES")
	}
	s := m.settings()
	hook, _, _ := unstructured.NestedStringSlice(cni.FindContainer(m.agent, "containers", container), "lifecycle", "postStart", "exec", "command")
	switch ipam := s["ipam"]; {
	case strings.Contains(strings.Join(hook, " "), installScript):
		return nil, refuse("Cilium before 1.14 takes a node as soon as its agent starts there: a script ("+installScript+") writes the CNI configuration, and deletes or renames others, staged or not",
			"give the manifest of a newer release")
	case ipam != "" && ipam != "cluster-pool":
		return nil, refuse("Cilium would take its addresses from elsewhere (ipam "+ipam+"), where the source's pods may have theirs",
			"set ipam.mode=cluster-pool and a range that is free: --set ipam.mode=cluster-pool")
	case s.replaces():
		return nil, refuse("Cilium would take over kube-proxy's work on a node as soon as its agent starts there (kube-proxy-replacement "+s["kube-proxy-replacement"]+")",
			"set kubeProxyReplacement=false for the change of networks, and replace kube-proxy afterwards")
	case s["cni-chaining-mode"] != "" && s["cni-chaining-mode"] != "none":
		return nil, refuse("Cilium would be chained behind another network (cni-chaining-mode "+s["cni-chaining-mode"]+"), and replace none", "set cni.chainingMode=none")
	}
	if err := s.unfit(); err != nil {
		return nil, err
	}
	if err := m.strangers(); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *manifest) settings() settings {
	data, _, _ := unstructured.NestedStringMap(m.config.Object, "data")
	return data
}

// fit makes the joint form, and returns the name of its CNI configuration.
func (m *manifest) fit(request cni.Request) step.ConfArgs {
	s := m.settings()
	if s == nil {
		s = settings{}
	}
	if source := request.Source; source != nil {
		if c := source.Capabilities; c.Encapsulation == s.mode() && c.Port == s.port() {
			s["tunnel-port"] = strconv.Itoa(c.Port + 1)
		}
	}
	conf := cni.Staged(s.confName(), "00-cilium.conflist", request.Source)
	s["cluster-pool-ipv4-cidr"] = request.PodCIDR
	s["custom-cni-conf"], s["cni-exclusive"] = "false", "false"
	s["write-cni-conf-when-ready"] = confDir + conf.Staged
	s["unmanaged-pod-watcher-interval"] = "0" // otherwise the operator deletes pods of the source
	s["set-cilium-node-taints"] = "false"     // otherwise the operator keeps pods of the source off a node whose agent is not ready
	// Otherwise its chains come first, and accept traffic before the source's policy agent sees it.
	s["prepend-iptables-chains"] = "false"
	// Otherwise an agent that starts deletes what makes the source's pods known to it.
	s["enable-stale-cilium-endpoint-cleanup"] = "false"
	if source := request.Source; source != nil && source.Capabilities.MTU > 0 && s["mtu"] == "" {
		// Otherwise the agent takes the smallest MTU of all links, and the source's tunnel is one of them.
		s["mtu"] = strconv.Itoa(source.Capabilities.MTU + source.Capabilities.Overhead)
	}
	// understand has checked that the paths lead through maps.
	_ = unstructured.SetNestedStringMap(m.config.Object, s, "data")
	for i := range m.objects {
		if m.objects[i].GetKind() == "DaemonSet" { // its proxy needs the agent of its node
			only(&m.objects[i], request.NodeLabel)
		}
	}
	agent := cni.FindContainer(m.agent, "containers", container)
	unstructured.RemoveNestedField(agent, "lifecycle", "preStop") // it deletes the CNI configuration
	if lifecycle, ok := agent["lifecycle"].(map[string]any); ok && len(lifecycle) == 0 {
		delete(agent, "lifecycle")
	}
	return conf
}

func refuse(message, hint string) error { return &cni.Refusal{Message: message, Hint: hint} }
