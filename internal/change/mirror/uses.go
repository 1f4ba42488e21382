package mirror

import (
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/owner"
	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/step"
)

// uses lists what the actions of a plan do in the original, beyond what every plan does. The mirror is another cluster,
// with permissions of its own.
func uses(p *kind.Plan) []step.Use {
	var all []step.Use
	for i := range p.Steps {
		for _, action := range p.Steps[i].Actions {
			for _, use := range usesOf(action) {
				if !slices.Contains(all, use) {
					all = append(all, use)
				}
			}
		}
	}
	return all
}

// usesOf lists what one action does in the original. The arguments of a sound plan can be read.
func usesOf(a step.Action) []step.Use {
	if a.Op() != step.OpMirror {
		return nil
	}
	switch a.Verb() {
	case Freeze, Thaw:
		args, _ := step.Arguments[FreezeArgs](a)
		return freezes(args.Namespaces)
	case Copy: // kinds of any API group, and cluster-scoped objects that they name
		return []step.Use{{Group: "*", Resource: "*", Verbs: "list"}}
	case Ready:
		if args, _ := step.Arguments[ReadyArgs](a); args.Original {
			return each(args.Namespaces, step.Use{Group: "apps", Resource: "deployments", Verbs: "list"},
				step.Use{Group: "apps", Resource: "statefulsets", Verbs: "list"},
				step.Use{Group: "apps", Resource: "daemonsets", Verbs: "list"})
		}
	case AddNames, TakeNames:
		args, _ := step.Arguments[CertificateArgs](a)
		return named(args.Namespaces)
	}
	return nil
}

// freezes lists what a freeze of namespaces does, and its end: the policy, the writes without effect that prove it, and
// what Argo CD and Flux deploy from.
func freezes(namespaces []string) []step.Use {
	const policies = "admissionregistration.k8s.io"
	all := []step.Use{
		{Group: policies, Resource: "validatingadmissionpolicies", Verbs: "get create patch delete"},
		{Group: policies, Resource: "validatingadmissionpolicybindings", Verbs: "create patch delete"},
	}
	for _, k := range owner.Kinds() {
		all = append(all, step.Use{Group: k.Group, Resource: k.Resource, Verbs: "get list patch"})
	}
	return append(all, each(namespaces, step.Use{Resource: "configmaps", Verbs: "create"})...)
}

// named lists what adding names to the certificates of namespaces does. The Secrets with certificates may be in others.
func named(namespaces []string) []step.Use {
	all := []step.Use{{Resource: "secrets", Verbs: "get"},
		{Group: certs.Group, Resource: "issuers", Verbs: "list"},
		{Group: certs.Group, Resource: "clusterissuers", Verbs: "list"}}
	for _, edited := range []step.Use{{Group: certs.Group, Resource: "certificates"},
		{Group: "networking.k8s.io", Resource: "ingresses"},
		{Group: "gateway.networking.k8s.io", Resource: "gateways"}} {
		edited.Verbs = "list"
		all = append(all, edited)
		edited.Verbs = "get patch"
		all = append(all, each(namespaces, edited)...)
	}
	challenges := step.Use{Group: "acme." + certs.Group, Resource: "challenges", Verbs: "list"}
	return append(all, each(namespaces, challenges)...)
}

// each repeats uses for namespaces.
func each(namespaces []string, uses ...step.Use) []step.Use {
	var all []step.Use
	for _, namespace := range namespaces {
		for _, use := range uses {
			use.Namespace = namespace
			all = append(all, use)
		}
	}
	return all
}
