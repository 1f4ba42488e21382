package calico

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// The facts about the operator in this file are from v1.40 (tigera/operator: api/v1/installation_types.go,
// pkg/render/node.go, pkg/controller/ippool, pkg/controller/installation).
const (
	operatorCRDs = "installations." + operatorGroup
	poolCRDs     = "ippools.crd.projectcalico.org"
	confFolder   = cluster.DefaultConfFolder
	pluginFolder = cluster.DefaultPluginFolder
	// stagedFolder is a subfolder of it, which no runtime reads.
	stagedFolder = "theseus"
	// managedBy is the label that marks pools as managed by the operator.
	managedBy = "app.kubernetes.io/managed-by"
	allFiles  = "give operator-crds.yaml, tigera-operator.yaml and custom-resources.yaml of one release, in one file"
	withoutIt = "give the release's manifest without the operator, such as manifests/calico-vxlan.yaml; the operator " +
		"can take over that installation afterwards"
)

// operation is the parsed manifest of the user, with the operator. Everything in it is a copy.
type operation struct {
	version              string
	definitions, objects []unstructured.Unstructured
	// installation configures Calico for the operator, later other products.
	installation *unstructured.Unstructured
	later        []unstructured.Unstructured
}

// byOperator reports whether a manifest installs Calico through its operator.
func byOperator(documents []unstructured.Unstructured) bool {
	return operatorIn(documents) != nil || slices.ContainsFunc(documents, func(o unstructured.Unstructured) bool {
		return o.GroupVersionKind().Group == operatorGroup
	})
}

// operate makes a target that the operator installs. The operator reverts changes to its objects, so all settings for
// the joint phase are in its Installation: the node label, and another folder for the CNI configuration.
func operate(request cni.Request) (*cni.Target, error) {
	own, err := understandOperator(request)
	if err != nil {
		return nil, err
	}
	if request.Takeover != nil {
		return nil, cni.Unadoptable("no run has ever moved running pods to a Calico that its operator installs")
	}
	if err := own.fit(request); err != nil {
		return nil, err
	}
	joint := own.installation.DeepCopy()
	mtu := jointMTU(request.Source, number(own.installation, "spec", "calicoNetwork", "mtu"))
	stageOperator(joint, request.NodeLabel, mtu)
	cni.Label(own.definitions)
	cni.Label(own.objects)
	ref, at := step.RefOf(joint), len(own.objects)
	objects := append(own.objects, *joint)
	cni.Label(objects[at:])
	conf := cni.Staged(defaultConf, "00-calico.conflist", request.Source)
	conf.Staged = stagedFolder + "/" + defaultConf

	installation := own.described(request, ref)
	installation.Parts = cni.Parts(own.later, objects, own.definitions)
	installation.Capabilities.MTU = mtu
	return &cni.Target{
		Installation: installation,
		Definitions:  own.definitions,
		Objects:      objects,
		Extras:       oldPools(request.Source, cluster.CalicoStored),
		Final:        own.final(objects[at].GetLabels()),
		HandOver:     append(cni.HandOver(own.definitions, own.objects), own.handOver(ref)),
		Conf:         conf,
		Made: &cni.Made{Joint: made(request.NodeLabel, "true", confFolder+"/"+stagedFolder),
			Own: made(request.NodeLabel, nil, confFolder)},
	}, nil
}

// made returns the fields of the agents' DaemonSet that show which Installation it was created from.
func made(label string, value any, folder string) json.RawMessage {
	return cni.Raw(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"nodeSelector": map[string]any{label: value},
		"volumes":      []any{map[string]any{"hostPath": map[string]any{"path": folder}}},
	}}}})
}

// understandOperator parses a manifest, or refuses it with a reason.
func understandOperator(request cni.Request) (*operation, error) {
	o := &operation{version: Rendered(request.Manifest)}
	for i := range request.Manifest {
		object := request.Manifest[i].DeepCopy()
		gvk := object.GroupVersionKind()
		switch {
		case gvk.Kind == "CustomResourceDefinition":
			o.definitions = append(o.definitions, *object)
		case gvk.Group == operatorGroup && gvk.Kind == "Installation" && object.GetName() == "default" &&
			o.installation == nil:
			o.installation = object
		case gvk.Group == operatorGroup && gvk.Kind == "Installation":
			return nil, refuse("the manifest also has the Installation "+object.GetName()+
				", which overrides the other one", "put all settings into the Installation default")
		case gvk.Group == operatorGroup && gvk.Kind != "ImageSet":
			o.later = append(o.later, *object)
		case gvk.Kind == "IPPool" && object.GetLabels()[managedBy] == operatorName: // made again
		case gvk.Kind == "IPPool":
			return nil, refuse("the manifest has an IPPool "+object.GetName()+" in addition to the operator",
				"put it into spec.calicoNetwork.ipPools of the Installation")
		case slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, gvk.Kind) &&
			object.GetName() != operatorName:
			return nil, refuse(fmt.Sprintf("the manifest contains %s %s in addition to the "+
				"operator", gvk.Kind, object.GetName()),
				allFiles+", with as few changes as possible")
		default:
			o.objects = append(o.objects, *object)
		}
	}
	release := ""
	if deployment := operatorIn(o.objects); deployment != nil {
		release = cni.WorkloadVersion(deployment)
	}
	defined := append(definitionsOf(&manifest{definitions: o.definitions}), request.Defined...)
	switch {
	case release == "":
		return nil, refuse("the manifest has objects of Calico's operator, but no Deployment "+operatorName, allFiles)
	case o.installation == nil:
		return nil, refuse(
			"the manifest has Calico's operator, but not the Installation default from which the operator would "+
				"install "+
				"Calico", allFiles)
	case o.version == "":
		return nil, refuse("which version of Calico the operator "+release+" makes is not known",
			"give the manifests of a known release: Calico v3.31")
	case !o.stages(release):
		return nil, refuse("the operator "+release+" lets its agents write "+defaultConf+" into "+confFolder+
			": from then on, new pods of a node are on Calico, and no setting prevents that (Installation: "+
			"spec.cni.confDir)",
			"give the manifests of the operator v1.40 (Calico v3.31) or later; or "+withoutIt)
	case !slices.Contains(defined, operatorCRDs) || !slices.Contains(defined, poolCRDs):
		return nil, refuse("neither the manifest nor the cluster defines Installations and IPPools, which must exist "+
			"before the operator starts", allFiles)
	}
	o.unstage(request.NodeLabel)
	return o, o.understood(request.Source)
}

// unstage reverts the changes of stageOperator, if the manifest already has them.
func (o *operation) unstage(label string) {
	if o.setting("cni.confDir") != confFolder+"/"+stagedFolder {
		return
	}
	o.set(confFolder, "cni", "confDir")
	for _, override := range []string{agentOverride, driverOverride} {
		unstructured.RemoveNestedField(o.installation.Object, append(nodeSelectorOf(override), label)...)
	}
}

// stages reports whether the operator has a setting for the folder of the agents' CNI configuration, according to the
// CRD of the Installation, if the manifest has it, and to the operator's release.
func (o *operation) stages(release string) bool {
	for i := range o.definitions {
		versions, _, _ := unstructured.NestedSlice(o.definitions[i].Object, "spec", "versions")
		if o.definitions[i].GetName() != operatorCRDs || len(versions) == 0 {
			continue
		}
		one, _ := versions[0].(map[string]any)
		fields, described, _ := unstructured.NestedMap(one, "schema", "openAPIV3Schema", "properties", "spec",
			"properties", "cni", "properties")
		if _, known := fields["confDir"]; described && !known {
			return false
		}
	}
	v, err := version.ParseSemantic(release)
	return err == nil && v.AtLeast(version.MajorMinor(1, 40))
}

// understood refuses settings for which the joint phase is not supported.
func (o *operation) understood(source *cni.Installation) error {
	for _, setting := range []struct {
		field string
		known []string
	}{
		{"variant", []string{"", "Calico"}},
		{"kubernetesProvider", []string{""}},
		{"cni.type", []string{"", "Calico"}},
		{"cni.ipam.type", []string{"", "Calico"}},
		{"cni.confDir", []string{"", confFolder}},
		{"cni.binDir", []string{"", pluginFolder}},
		{"calicoNetwork.linuxDataplane", []string{"", "Iptables", "Nftables"}},
		{"calicoNetwork.windowsDataplane", []string{"", "Disabled"}},
	} {
		value := o.setting(setting.field)
		if !slices.Contains(setting.known, value) {
			return refuse(fmt.Sprintf("the Installation has spec.%s: %s, with which Theseus does not support two "+
				"joined "+
				"networks", setting.field, value), "leave it out, or change it afterwards")
		}
	}
	for i := range o.objects {
		if on, _, _ := unstructured.NestedBool(o.objects[i].Object, "spec", "bpfEnabled"); on &&
			o.objects[i].GetKind() == "FelixConfiguration" {
			return refuse("the manifest turns on Calico's BPF data plane, which replaces kube-proxy on every node "+
				"at once",
				"migrate with the standard data plane, and switch the data plane afterwards")
		}
	}
	if sharesTables(source) && o.setting("calicoNetwork.linuxDataplane") != "Nftables" {
		return refuse("another agent enforces policy in iptables next to "+source.CNI+", so Felix must keep its rules "+
			"in nftables while both networks run, and the operator would revert that on all nodes at once",
			"set spec.calicoNetwork.linuxDataplane: Nftables in the Installation, if it may stay; or "+withoutIt)
	}
	return nil
}

func (o *operation) setting(field string) string {
	value, _, _ := unstructured.NestedString(o.installation.Object,
		append([]string{"spec"}, strings.Split(field, ".")...)...)
	return value
}

// number returns a number in an object as text; empty if there is none.
func number(object *unstructured.Unstructured, fields ...string) string {
	if n, ok, _ := unstructured.NestedInt64(object.Object, fields...); ok {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// fit makes the permanent changes that keep the two networks from conflicting. It creates the pool as the operator
// would: the operator adopts pools with its label, and creates none if a cluster already has pools, or if kubeadm has
// another range.
func (o *operation) fit(request cni.Request) error {
	pool := map[string]any{"name": "default-ipv4-ippool", "blockSize": int64(26), "natOutgoing": "Enabled",
		"nodeSelector": "all()", "disableBGPExport": false, "allowedUses": []any{"Workload", "Tunnel"},
		"assignmentMode": "Automatic"}
	pools, _, _ := unstructured.NestedSlice(o.installation.Object, "spec", "calicoNetwork", "ipPools")
	if len(pools) > 1 {
		return refuse(fmt.Sprintf("the Installation has %d pools, but a change supports only one range", len(pools)),
			"leave one in spec.calicoNetwork.ipPools, and add the others afterwards")
	}
	if len(pools) == 1 {
		said, _ := pools[0].(map[string]any)
		for field, value := range said {
			pool[field] = value
		}
	}
	pool["cidr"], pool["encapsulation"], pool["disableNewAllocations"] = request.PodCIDR, "VXLAN", false
	o.set([]any{pool}, "calicoNetwork", "ipPools")
	o.set("Disabled", "calicoNetwork", "bgp")
	// Both are the operator's defaults, except on some clouds, which it detects.
	o.set("Calico", "cni", "type")
	o.set(confFolder, "cni", "confDir")
	// The first interface found may be the other network's; the node's own address in the API cannot be.
	detection, _, _ := unstructured.NestedMap(o.installation.Object, "spec", "calicoNetwork",
		"nodeAddressAutodetectionV4")
	if first, _ := detection["firstFound"].(bool); first || len(detection) == 0 {
		o.set(map[string]any{"kubernetes": "NodeInternalIP"}, "calicoNetwork", "nodeAddressAutodetectionV4")
	}
	if !slices.ContainsFunc(o.objects, func(u unstructured.Unstructured) bool {
		return u.GetKind() == "Namespace" && u.GetName() == operatorNamespace
	}) {
		o.objects = append(o.objects, unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
			"kind": "Namespace", "metadata": map[string]any{"name": operatorNamespace,
				"labels": map[string]any{"name": operatorNamespace, "pod-security.kubernetes.io/enforce": "privileged",
					"pod-security.kubernetes.io/enforce-version": "latest"}}}})
	}
	if sharesTables(request.Source) {
		o.otherMarks()
	}
	o.objects = append(o.objects,
		unstructured.Unstructured{Object: map[string]any{"apiVersion": cluster.CalicoStored, "kind": "IPPool",
			"metadata": map[string]any{"name": pool["name"], "labels": map[string]any{managedBy: operatorName}},
			"spec": map[string]any{"cidr": request.PodCIDR, "vxlanMode": "Always", "ipipMode": "Never",
				"natOutgoing": pool["natOutgoing"] == "Enabled", "blockSize": pool["blockSize"],
				"nodeSelector": pool["nodeSelector"], "disabled": false, "disableBGPExport": pool["disableBGPExport"],
				"allowedUses": pool["allowedUses"], "assignmentMode": pool["assignmentMode"]}}})
	cni.SortForApply(o.objects)
	return nil
}

// otherMarks gives Felix mark bits that the other policy agent does not use (sharesTables). The CRD allows at most 31
// bits in the field.
func (o *operation) otherMarks() {
	const mask = 0x7ff80000
	at := slices.IndexFunc(o.objects, func(u unstructured.Unstructured) bool {
		return u.GetKind() == "FelixConfiguration" && u.GetName() == "default"
	})
	if at < 0 {
		o.objects = append(o.objects, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": cluster.CalicoStored, "kind": "FelixConfiguration",
			"metadata": map[string]any{"name": "default"}}})
		at = len(o.objects) - 1
	}
	_ = unstructured.SetNestedField(o.objects[at].Object, int64(mask), "spec", "nftablesMarkMask")
}

func (o *operation) set(value any, fields ...string) {
	// The path leads through maps; otherwise the API server would not accept the object either.
	_ = unstructured.SetNestedField(o.installation.Object, value, append([]string{"spec"}, fields...)...)
}

// nodeSelectorOf returns the path in an Installation to the node selector of a workload.
func nodeSelectorOf(override string) []string {
	return []string{"spec", override, "spec", "template", "spec", "nodeSelector"}
}

const (
	agentOverride  = "calicoNodeDaemonSet"
	driverOverride = "csiNodeDriverDaemonSet"
)

// stageOperator turns the Installation into its joint form. The CSI driver, which the operator runs on all nodes at
// once, comes at the end.
func stageOperator(installation *unstructured.Unstructured, label string, mtu int) {
	set := func(value any, fields ...string) {
		_ = unstructured.SetNestedField(installation.Object, value, fields...)
	}
	set("true", append(nodeSelectorOf(agentOverride), label)...)
	set("later", append(nodeSelectorOf(driverOverride), label)...)
	set(confFolder+"/"+stagedFolder, "spec", "cni", "confDir")
	set(oneByOne(), "spec", "nodeUpdateStrategy")
	if mtu > 0 {
		set(int64(mtu), "spec", "calicoNetwork", "mtu")
	}
}

func oneByOne() map[string]any {
	return map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(1)}}
}

// final returns the actions that give the Installation its own form, after which the operator recreates the agents one
// by one, and then creates the other objects.
func (o *operation) final(labels map[string]string) []step.Action {
	own := o.installation.DeepCopy()
	own.SetLabels(labels)
	_ = unstructured.SetNestedField(own.Object, oneByOne(), "spec", "nodeUpdateStrategy")
	actions := []step.Action{{Do: step.Apply{Object: own}, Title: "apply Installation default as in your manifest"}}
	for i := range o.later {
		object := &o.later[i]
		actions = append(actions,
			step.Action{Do: step.Apply{Object: object}, Title: "create " + object.GetKind() + " " + object.GetName()})
	}
	return actions
}

// handOver removes Theseus' label from the Installation, and restores the user's update strategy, if any.
func (o *operation) handOver(ref step.Ref) step.Action {
	actions := cni.HandOver([]unstructured.Unstructured{*o.installation})
	strategy, _, _ := unstructured.NestedFieldNoCopy(o.installation.Object, "spec", "nodeUpdateStrategy")
	action := actions[0]
	action.Do = step.Patch{Ref: ref, Merge: cni.Raw(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{v1alpha1.LabelManaged: nil}}, "spec": map[string]any{"nodeUpdateStrategy": strategy}})}
	return action
}

// outgoing reports whether the created pool has natOutgoing.
func (o *operation) outgoing() bool {
	for i := range o.objects {
		if o.objects[i].GetKind() == "IPPool" {
			outgoing, _, _ := unstructured.NestedBool(o.objects[i].Object, "spec", "natOutgoing")
			return outgoing
		}
	}
	return false
}

// described returns the network as the operator will install it.
func (o *operation) described(request cni.Request, ref step.Ref) cni.Installation {
	caps := capabilities(defaultConf)
	var felix []unstructured.Unstructured
	for _, object := range o.objects {
		if object.GetKind() == "FelixConfiguration" {
			felix = append(felix, object)
		}
	}
	applyFelix(&caps, felix)
	caps.Untracked = untracked(o.version, caps)
	caps.Masquerade = willMasquerade(request, o.outgoing(), felix, func(string) string { return "" })
	agent := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: operatorNamespace, Name: agentName}
	deployment := func(name string) step.Ref {
		return step.Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: operatorNamespace, Name: name}
	}
	ready := *whole()
	return cni.Installation{
		CNI: "calico", Version: o.version, Agent: agent, Selector: "k8s-app=" + agentName,
		PodCIDRs: rangesOf(request), Capabilities: caps, ConfFolder: confFolder, PluginFolder: pluginFolder,
		Maker: &cni.Maker{
			Ref: ref, Makes: []step.Ref{agent, deployment(typhaName), deployment(controllersName), ready.Ref()},
			NodeSelector: nodeSelectorOf(agentOverride), Ready: ready,
		},
	}
}
