package flannel

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Install implements cni.Driver. It makes two forms of the user's manifest. The joint form runs flannel only on
// labelled nodes and copies its CNI configuration to a name that no runtime reads. The final form is the user's own,
// with the range of the pods. Pods always get addresses of their node's own range, so the caller must check that those
// are within the range.
func (Driver) Install(request cni.Request) (*cni.Target, error) {
	if prefix, err := netip.ParsePrefix(request.PodCIDR); err != nil || !prefix.Addr().Is4() {
		return nil, refuse(fmt.Sprintf("the range for flannel's pods, %q, is not an IPv4 CIDR", request.PodCIDR),
			"set --pod-cidr to the range that contains the nodes' own ranges (spec.podCIDR), such as 10.244.0.0/16")
	}
	if source := request.Source; source != nil && source.Capabilities.Encapsulation != "vxlan" {
		return nil, refuse(fmt.Sprintf("flannel was only run next to networks that use VXLAN, not next to %s as "+
			"it runs "+
			"here (%s)",
			source.CNI, source.Capabilities.Encapsulation),
			toVXLAN(source))
	}
	final, err := understand(request.Manifest)
	if err != nil {
		return nil, err
	}
	if err := final.fit(request.PodCIDR); err != nil {
		return nil, err
	}
	joint, err := understand(final.objects)
	if err != nil {
		return nil, err
	}
	conf := cni.Staged(final.confName(), "00-flannel.conflist", request.Source)
	joint.stage(request.NodeLabel, conf)
	cni.Label(joint.objects)
	cni.Label(final.objects)
	return &cni.Target{
		Installation: final.installation(request),
		Objects:      joint.objects,
		Final:        cni.Finish(joint.objects, final.objects),
		HandOver:     cni.HandOver(final.objects),
		Conf:         conf,
	}, nil
}

// toVXLAN is how a network in place comes to use VXLAN.
func toVXLAN(source *cni.Installation) string {
	switch {
	case source.CNI != "calico":
		return "choose another target with --to; docs/networks.md lists them"
	case source.Capabilities.Encapsulation == "ipip":
		return cni.FromIPIP("ippools.crd.projectcalico.org", "POOL")
	}
	return "change that first: theseus plan --encapsulation vxlan"
}

// manifest is the parsed manifest of the user. Everything in it is a copy.
type manifest struct {
	objects       []unstructured.Unstructured
	agent, config *unstructured.Unstructured // in objects
}

const useUpstream = "give only flannel's own manifest: kube-flannel.yml of its release, or the output of helm " +
	"template with its chart"

// understand parses a manifest, or refuses it with a reason.
func understand(documents []unstructured.Unstructured) (*manifest, error) {
	m := &manifest{}
	for i := range documents {
		m.objects = append(m.objects, *documents[i].DeepCopy())
	}
	cni.SortForApply(m.objects)
	for i := range m.objects {
		switch object := &m.objects[i]; object.GetKind() {
		case "DaemonSet":
			if m.agent != nil || imageOf(object) == "" {
				return nil, refuse(fmt.Sprintf("the manifest contains DaemonSet %s/%s in addition to flannel's, "+
					"and its "+
					"effect next to another network is unknown",
					object.GetNamespace(), object.GetName()), useUpstream)
			}
			m.agent = object
		case "ConfigMap":
			if object.GetName() == configMap {
				m.config = object
			}
		}
	}
	switch {
	case m.agent == nil || m.config == nil:
		return nil, refuse("the manifest contains no DaemonSet that runs flannel, or no ConfigMap "+
			""+configMap, useUpstream)
	case imageNamed(m.agent, policies) != "":
		return nil, refuse(fmt.Sprintf("DaemonSet %s also runs %s, and its effect on pods of another network is "+
			"unknown", m.agent.GetName(), policies),
			"leave it out: --set netpol.enabled=false")
	case m.installer() == nil:
		return nil, refuse("no init container of DaemonSet "+m.agent.GetName()+
			" copies the CNI configuration to "+confDir, useUpstream)
	}
	return m, nil
}

// imageOf returns the image of the container that runs flannel; empty if there is none.
func imageOf(workload *unstructured.Unstructured) string { return imageNamed(workload, "flannel") }

// imageNamed returns the image of a workload's container whose image name contains a word; empty if there is none.
func imageNamed(workload *unstructured.Unstructured, word string) string {
	var containers []corev1.Container
	for _, container := range cni.ContainersOf(workload, "containers") {
		image, _ := container["image"].(string)
		containers = append(containers, corev1.Container{Image: image})
	}
	return cni.ImageOf(containers, word)
}

// confDir is the mount path of the folder of CNI configurations in the init container.
const confDir = "/etc/cni/net.d/"

// pluginDir is the mount path of the folder of plugins in another init container.
const pluginDir = "/opt/cni/bin"

// installer returns the init container that copies the CNI configuration: its last argument is the destination.
func (m *manifest) installer() map[string]any {
	for _, container := range cni.ContainersOf(m.agent, "initContainers") {
		args, _ := container["args"].([]any)
		if len(args) == 0 {
			continue
		}
		if to, _ := args[len(args)-1].(string); strings.HasPrefix(to, confDir) && isConf(path.Base(to)) {
			return container
		}
	}
	return nil
}

func (m *manifest) confName() string {
	args := m.installer()["args"].([]any) // checked by understand
	return strings.TrimSuffix(path.Base(args[len(args)-1].(string)), cni.StagedSuffix)
}

// fit sets flannel's range, or refuses settings that were never tested next to another network.
func (m *manifest) fit(cidr string) error {
	text, _, _ := unstructured.NestedString(m.config.Object, "data", "net-conf.json")
	conf := map[string]any{}
	if err := json.Unmarshal([]byte(text), &conf); err != nil {
		return refuse(fmt.Sprintf("net-conf.json of ConfigMap %s cannot be read: %v", configMap, err), useUpstream)
	}
	if conf["Network"] != cidr {
		conf["Network"] = cidr
		data, err := json.Marshal(conf)
		if err != nil {
			return fmt.Errorf("encode net-conf.json: %w", err)
		}
		text = string(data)
		_ = unstructured.SetNestedField(m.config.Object, text, "data", "net-conf.json") // it is a map of strings
	}
	read, problems := m.netConf()
	_, more := readPodConf(m.typed())
	problems = append(problems, more...)
	switch nft, _ := conf["EnableNFTables"].(bool); {
	case len(problems) > 0:
		return refuse(problems[0], useUpstream)
	case read.Backend.Type != "vxlan":
		return refuse("flannel was run next to another network only with the backend vxlan, not with "+
			read.Backend.Type, `set "Backend": {"Type": "vxlan"} in net-conf.json`)
	case read.EnableIPv6:
		return refuse("two networks are joined for IPv4 only, and net-conf.json has EnableIPv6",
			`set "EnableIPv6": false in net-conf.json`)
	case nft:
		return refuse("with EnableNFTables flannel masquerades in tables of its own, where packets to the "+
			"other network cannot be exempted",
			`set "EnableNFTables": false in net-conf.json; it can be turned on after the change`)
	}
	return nil
}

func (m *manifest) netConf() (netConf, []string) { return readNetConf(m.typed()) }

// typed returns the ConfigMap as a typed object.
func (m *manifest) typed() *corev1.ConfigMap {
	data, _, _ := unstructured.NestedStringMap(m.config.Object, "data")
	config := &corev1.ConfigMap{Data: data}
	config.Namespace, config.Name = m.config.GetNamespace(), m.config.GetName()
	return config
}

// stage turns the manifest into its joint form.
func (m *manifest) stage(label string, conf step.ConfArgs) {
	// understand has checked that the path leads through maps.
	_ = unstructured.SetNestedField(m.agent.Object, "true", "spec", "template", "spec", "nodeSelector", label)
	args := m.installer()["args"].([]any)
	args[len(args)-1] = confDir + conf.Staged
}

func (m *manifest) installation(request cni.Request) cni.Installation {
	conf, _ := m.netConf() // fit has checked that both can be parsed
	pods, _ := readPodConf(m.typed())
	version := cluster.ImageOf(imageOf(m.agent)).Tag
	caps := capabilities(conf, pods.bridge(), m.confName())
	caps.Chained = pods.chained()
	var agent appsv1.DaemonSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m.agent.Object, &agent); err == nil {
		conf.Network = request.PodCIDR
		caps.Masquerade = masqueraded([]*appsv1.DaemonSet{&agent}, conf)
	}
	return cni.Installation{
		CNI:          "flannel",
		Version:      version,
		Agent:        step.RefOf(m.agent),
		Selector:     cni.SelectorText(m.agent),
		ConfFolder:   cni.HostFolderIn(m.agent, path.Clean(confDir)),
		PluginFolder: cni.HostFolderIn(m.agent, pluginDir),
		PodCIDRs:     []string{request.PodCIDR},
		Data:         pods.data(),
		Capabilities: caps,
		Parts:        cni.Parts(m.objects),
	}
}

func refuse(message, hint string) error { return &cni.Refusal{Message: message, Hint: hint} }
