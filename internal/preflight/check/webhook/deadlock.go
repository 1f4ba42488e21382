// Package webhook checks admission webhooks on which a change depends.
package webhook

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed deadlock.md
var deadlockDoc string

const id = "webhook/deadlock"

// Deadlock reports webhooks that must answer for operations of a change, and run on the network that is changed.
func Deadlock() check.Check {
	return check.Check{
		ID:    id,
		Title: "A webhook that must answer runs on the network that is changed",
		Doc:   deadlockDoc,
		Needs: []string{"pods", "services", "namespaces"},
		Some:  []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"},
		Run:   deadlocks,
	}
}

// touched returns the resources that a change creates, patches or deletes, by group.
func touched() map[string][]string {
	return map[string][]string{
		"": {"pods", "pods/eviction", "nodes", "configmaps", "services",
			"serviceaccounts", "namespaces"},
		"apps":                      {"daemonsets", "deployments"},
		"apiextensions.k8s.io":      {"customresourcedefinitions"},
		"rbac.authorization.k8s.io": {"clusterroles", "clusterrolebindings"},
		"coordination.k8s.io":       {"leases"},
		"networking.k8s.io":         {"networkpolicies"},
	}
}

func deadlocks(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		for _, object := range pass.Snapshot.OtherOf("admissionregistration.k8s.io", kind) {
			// The fields that are read here are the same in both kinds.
			var configuration admissionv1.ValidatingWebhookConfiguration
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &configuration); err != nil {
				found = append(found, unreadable(&object, err))
				continue
			}
			for i := range configuration.Webhooks {
				if f, ok := judge(pass, &configuration.Webhooks[i]); ok {
					f.ID, f.Subject = id, finding.Subject{Kind: kind, Name: object.GetName()}
					found = append(found, f)
				}
			}
		}
	}
	return found
}

func unreadable(object *unstructured.Unstructured, err error) finding.Finding {
	return finding.Finding{ID: id, Severity: finding.Warn,
		Subject: finding.Subject{Kind: object.GetKind(), Name: object.GetName()},
		Message: fmt.Sprintf("it cannot be read (%v): for which requests it is called is unknown", err)}
}

// judge judges one webhook; the caller sets the subject of the finding.
func judge(pass *check.Pass, hook *admissionv1.ValidatingWebhook) (finding.Finding, bool) {
	service := hook.ClientConfig.Service
	if service == nil || hook.FailurePolicy != nil && *hook.FailurePolicy == admissionv1.Ignore {
		return finding.Finding{}, false // outside of the cluster, or not required to answer
	}
	asked := askedAbout(hook.Rules)
	exists, pods := pass.Behind(service.Namespace, service.Name)
	if len(asked) == 0 || exists != nil && len(exists.Spec.Selector) == 0 {
		return finding.Finding{}, false
	}
	f := finding.Finding{
		Severity: finding.Block,
		Evidence: map[string]any{"webhook": hook.Name, "service": service.Namespace + "/" + service.Name,
			"askedAbout": asked, "pods": len(pods)},
		Fix: fmt.Sprintf("exempt the namespace %s and kube-system by its namespaceSelector (key "+
			"kubernetes.io/metadata.name, NotIn), or set failurePolicy: Ignore for the duration of the change",
			service.Namespace),
	}
	moving := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !check.Moves(pod) })
	nodes := nodesOf(moving)
	switch own := asksAboutItself(pass, hook, moving); {
	case len(pods) == 0:
		f.Message = fmt.Sprintf("%s must answer for %s, but its Service %s/%s has no pods: the API server "+
			"already refuses such requests",
			hook.Name, strings.Join(asked, ", "), service.Namespace, service.Name)
	case len(moving) < len(pods):
		return finding.Finding{}, false // some of its pods are hostNetwork pods, which stay
	case own && len(nodes) == 1 && slices.ContainsFunc(moving, pass.Recreates):
		f.Message = fmt.Sprintf("%s must answer for pods of its own namespace, and all its pods are on the node "+
			"%s: when they are evicted, their replacements cannot be created without them", hook.Name, nodes[0])
	case own:
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("%s must answer for pods of its own namespace: if the API server reaches none of its "+
			"%d pods for a while, new ones cannot be created",
			hook.Name, len(pods))
	default:
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("%s must answer for %s, on the network that is changed: while the API server does "+
			"not reach it, the change and every rollout stop",
			hook.Name, strings.Join(asked, ", "))
	}
	return f, true
}

func nodesOf(pods []*corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Spec.NodeName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// askedAbout returns the resources of a change that rules match, as kubectl writes them.
func askedAbout(rules []admissionv1.RuleWithOperations) []string {
	var names []string
	for group, resources := range touched() {
		for _, resource := range resources {
			if slices.ContainsFunc(rules,
				func(rule admissionv1.RuleWithOperations) bool { return ruleNames(rule, group, resource) }) {
				name := resource
				if group != "" {
					name += "." + group
				}
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// ruleNames reports whether a rule matches a resource; "*" matches all without subresources, "*/*" also these.
func ruleNames(rule admissionv1.RuleWithOperations, group, resource string) bool {
	main, sub, _ := strings.Cut(resource, "/")
	return slices.ContainsFunc(rule.APIGroups, func(g string) bool { return g == "*" || g == group }) &&
		slices.ContainsFunc(rule.Resources, func(r string) bool {
			ruleMain, ruleSub, _ := strings.Cut(r, "/")
			return (ruleMain == "*" || ruleMain == main) && (ruleSub == sub || ruleSub == "*")
		})
}

// asksAboutItself reports whether the API server calls the webhook to admit a replacement of the webhook's own pods.
func asksAboutItself(pass *check.Pass, hook *admissionv1.ValidatingWebhook, own []*corev1.Pod) bool {
	creates := slices.ContainsFunc(hook.Rules, func(rule admissionv1.RuleWithOperations) bool {
		return ruleNames(rule, "", "pods") &&
			slices.ContainsFunc(rule.Operations, func(o admissionv1.OperationType) bool {
				return o == admissionv1.OperationAll || o == admissionv1.Create
			})
	})
	if !creates || len(own) == 0 {
		return false
	}
	return selects(hook.ObjectSelector, own[0].Labels) &&
		selects(hook.NamespaceSelector, namespaceLabels(pass, own[0].Namespace))
}

// selects is true for an absent selector, and for one that cannot be parsed: missing data is no exemption.
func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err != nil || parsed.Matches(labels.Set(set))
}

// namespaceLabels includes the label that the API server gives every namespace.
func namespaceLabels(pass *check.Pass, name string) map[string]string {
	all := map[string]string{corev1.LabelMetadataName: name}
	for i := range pass.Snapshot.Namespaces {
		if pass.Snapshot.Namespaces[i].Name == name {
			for key, value := range pass.Snapshot.Namespaces[i].Labels {
				all[key] = value
			}
		}
	}
	return all
}
