package labels

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
)

// gatewayLists returns the gateways of Cilium's egress policies that have several.
func gatewayLists(s *cluster.Snapshot) []use {
	var uses []use
	for _, object := range s.OtherOf("cilium.io", "CiliumEgressGatewayPolicy") {
		list, _, _ := unstructured.NestedSlice(object.Object, "spec", "egressGateways")
		for i := range list {
			gateway, _ := list[i].(map[string]any)
			fields, _ := gateway["nodeSelector"].(map[string]any)
			var selector metav1.LabelSelector
			if fields == nil || decode(fields, &selector) != nil {
				continue
			}
			choice := nodes.OfLabels(selector, fmt.Sprintf("/spec/egressGateways/%d/nodeSelector", i))
			u := use{text: choice.String(), keys: choice.Keys(), picks: choice.Picks, patch: choice.Patch,
				loss: "these nodes are no longer a gateway, and connections through them break",
				gain: "these nodes may become the gateway"}
			u.at(object, fmt.Sprintf("spec.egressGateways[%d].nodeSelector", i))
			uses = append(uses, u)
		}
	}
	return uses
}

// attachmentNodes is an annotation of Multus' NetworkAttachmentDefinitions: the network-resources-injector gives it to
// pods as their nodeSelector (https://github.com/k8snetworkplumbingwg/network-resources-injector).
const attachmentNodes = "k8s.v1.cni.cncf.io/nodeSelector"

// attachments returns the node selectors of secondary networks.
func attachments(s *cluster.Snapshot) []use {
	var uses []use
	for _, object := range s.OtherOf("k8s.cni.cncf.io", "NetworkAttachmentDefinition") {
		text := object.GetAnnotations()[attachmentNodes]
		set, err := labels.ConvertSelectorToLabelsMap(text)
		if text == "" || err != nil {
			continue
		}
		choice := nodes.OfMap(set, "")
		u := use{text: text, keys: choice.Keys(), picks: choice.Picks,
			loss: "pods with this attachment are not scheduled there",
			gain: "pods with this attachment may be scheduled there"}
		u.at(object, "metadata.annotations["+attachmentNodes+"]")
		uses = append(uses, u)
	}
	return uses
}

// serviceUses returns the node labels that affect Services.
func serviceUses(s *cluster.Snapshot) []use {
	var uses []use
	for i := range s.Services {
		service := &s.Services[i]
		subject := finding.Subject{Kind: "Service", Namespace: service.Namespace, Name: service.Name}
		if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
			uses = append(uses, use{subject: subject, resource: "service", field: "load balancer",
				text: "not " + corev1.LabelNodeExcludeBalancers, keys: []string{corev1.LabelNodeExcludeBalancers},
				picks: func(_ map[string]string, n *corev1.Node) bool {
					_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
					return !excluded
				},
				loss: "the cloud's load balancer no longer sends to these nodes",
				gain: "the cloud's load balancer sends to these nodes too"})
		}
		if byZone(service) {
			uses = append(uses, use{subject: subject, resource: "service", field: "traffic within zones",
				text: corev1.LabelTopologyZone, keys: []string{corev1.LabelTopologyZone},
				picks: func(_ map[string]string, n *corev1.Node) bool {
					return n.Labels[corev1.LabelTopologyZone] != ""
				},
				loss: "endpoints get no hints while a node has no zone: traffic goes to all zones",
				gain: "traffic there stays in its zone"})
		}
	}
	return uses
}

// byZone reports whether a Service's traffic stays within zones.
func byZone(service *corev1.Service) bool {
	if d := service.Spec.TrafficDistribution; d != nil && (*d == "PreferClose" || *d == "PreferSameZone") {
		return true
	}
	for _, annotation := range []string{corev1.AnnotationTopologyMode, corev1.DeprecatedAnnotationTopologyAwareHints} {
		if mode := service.Annotations[annotation]; mode == "Auto" || mode == "auto" {
			return true
		}
	}
	return false
}

// webhookUses returns the webhooks that are called for some nodes and not for others.
func webhookUses(s *cluster.Snapshot) []use {
	var uses []use
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		for _, object := range s.OtherOf("admissionregistration.k8s.io", kind) {
			list, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
			for i := range list {
				hook, _ := list[i].(map[string]any)
				fields, _ := hook["objectSelector"].(map[string]any)
				var selector metav1.LabelSelector
				if !asksAboutNodes(hook) || fields == nil || decode(fields, &selector) != nil {
					continue
				}
				choice := nodes.OfLabels(selector, fmt.Sprintf("/webhooks/%d/objectSelector", i))
				if len(choice.Keys()) == 0 {
					continue
				}
				u := use{text: choice.String(), keys: choice.Keys(), picks: choice.Picks, patch: choice.Patch,
					loss: "it is no longer called for changes of these nodes",
					gain: "it is called for every change of these nodes, and may refuse it"}
				u.at(object, fmt.Sprintf("webhooks[%d].objectSelector", i))
				uses = append(uses, u)
			}
		}
	}
	return uses
}

// asksAboutNodes reports whether a rule of a webhook is about Node objects.
func asksAboutNodes(hook map[string]any) bool {
	rules, _ := hook["rules"].([]any)
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		groups, _, _ := unstructured.NestedStringSlice(fields, "apiGroups")
		resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
		return (slices.Contains(groups, "") || slices.Contains(groups, "*")) &&
			slices.ContainsFunc(resources, func(r string) bool {
				return r == "nodes" || r == "*" || r == "*/*" || r == "nodes/*"
			})
	})
}
