package objects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Action is what happens to an object on its way to the mirror.
type Action string

// The actions. Ask is no decision: a person has to make it.
const (
	Copy    Action = "copy"
	Skip    Action = "skip"    // it does not go over
	Suspend Action = "suspend" // it goes over, and does not run there
	Disarm  Action = "disarm"  // it goes over without what acts outside
	Ask     Action = "ask"
)

// ParseAction takes the name of an action that a person may decide on.
func ParseAction(name string) (Action, error) {
	for _, action := range []Action{Copy, Skip, Suspend, Disarm} {
		if name == string(action) {
			return action, nil
		}
	}
	return "", fmt.Errorf("%q is not an action: use copy, skip, suspend or disarm", name)
}

// Danger is an entry of the catalogue: what acts outside of its cluster, so that two of it are one too many.
type Danger struct {
	Kind   string // Kind.group; *.group for all kinds of a group, and *.*.group for those of the groups below it
	When   string // what else must hold of an object, in words; empty: nothing
	Action Action
	Why    string
	when   func(Object) bool
}

// Dangers is the catalogue, in the order in which it is searched. The first that fits counts.
func Dangers() []Danger {
	always := func(Object) bool { return true }
	skip := func(kind, why string) Danger { return Danger{kind, "", Skip, why, always} }
	suspend := func(kind, why string) Danger { return Danger{kind, "", Suspend, why, always} }
	ask := func(kind, why string) Danger { return Danger{kind, "", Ask, why, always} }
	const cloud = "its controller manages something in the cloud, and two controllers would manage one thing"
	return []Danger{
		skip("TargetGroupBinding.elbv2.k8s.aws",
			"the mirror's controller would take the original's pods out of the target group"),
		skip("DNSEndpoint.externaldns.k8s.io", "two external-dns would fight over one record"),
		skip("Order.acme.cert-manager.io",
			"an ACME order belongs to the account of one cluster, and authorities count orders"),
		skip("Challenge.acme.cert-manager.io", "an ACME challenge is answered by one cluster"),
		skip("CertificateRequest.cert-manager.io", "a request is made once; the mirror makes its own"),
		{"Certificate.cert-manager.io", "", Copy,
			"its Secret goes first, so the mirror's cert-manager has nothing to issue", always},
		suspend("Schedule.velero.io", "two clusters would write into one backup store"),
		skip("*.velero.io", "backups and restores belong to one cluster"),
		skip("Application.argoproj.io", "two Argo CDs, or one and this copy, would write the same objects"),
		skip("ApplicationSet.argoproj.io", "it would make the Applications that are not copied"),
		skip("Workflow.argoproj.io", "it would run a second time"),
		suspend("CronWorkflow.argoproj.io", "it would run in both clusters"),
		suspend("Kustomization.kustomize.toolkit.fluxcd.io", "Flux and this copy would write the same objects"),
		suspend("HelmRelease.helm.toolkit.fluxcd.io", "Flux and this copy would write the same objects"),
		skip("PipelineRun.tekton.dev", "it would run a second time"),
		skip("TaskRun.tekton.dev", "it would run a second time"),
		suspend("ScaledJob.keda.sh", "it would take messages off the queue in both clusters"),
		{"ScaledObject.keda.sh", "", Copy, "it scales consumers: mark the workload if it must not run twice",
			always},
		ask("VolumeSnapshot.snapshot.storage.k8s.io", "the snapshot exists only in the original's storage"),
		ask("*.*.crossplane.io", cloud),
		ask("*.crossplane.io", cloud),
		ask("*.*.upbound.io", cloud),
		ask("*.*.services.k8s.aws", cloud),
		ask("*.*.cnrm.cloud.google.com", cloud),
		ask("*.*.azure.com", cloud),
		ask("*.cluster.x-k8s.io", cloud),
		ask("*.*.cluster.x-k8s.io", cloud),
		{"Job.batch", "it is finished", Skip, "it would run a second time", finishedJob},
		suspend("Job.batch", "it would run in both clusters"),
		suspend("CronJob.batch", "it would run in both clusters"),
		{"Deployment.apps", "it runs external-dns, cluster-autoscaler or velero", Suspend,
			"it acts on the same records, nodes or backups as the original's", runsActor},
		{"Service", "it asks for an address or load balancer by name, or a DNS name", Disarm, outsideWhy, namesOutside},
		{"Ingress.networking.k8s.io", "it asks for an address or load balancer by name, a DNS name or a certificate",
			Disarm, outsideWhy, namesOutside},
		{"*.gateway.networking.k8s.io", "it asks for an address by name, or a DNS name",
			Disarm, outsideWhy, namesOutside},
	}
}

const outsideWhy = "the original has the resources that it names: the mirror gets its own, and names move once " +
	"they are proven"

// match says whether a kind of the catalogue means a kind.
func (d Danger) match(key Key) bool {
	kind, group, _ := strings.Cut(d.Kind, ".")
	if kind != "*" {
		return kind == key.Kind && group == key.Group
	}
	if below, ok := strings.CutPrefix(group, "*."); ok {
		return strings.HasSuffix(key.Group, "."+below)
	}
	return key.Group == group
}

// judge finds the entry of the catalogue for an object; one with the action Copy and no reason if none fits.
func judge(object Object) Danger {
	key := KeyOf(object)
	for _, danger := range Dangers() {
		if danger.match(key) && danger.when(object) {
			return danger
		}
	}
	return Danger{Action: Copy}
}

func finishedJob(object Object) bool {
	conditions, _ := at(object, "status", "conditions").([]any)
	return slices.ContainsFunc(conditions, func(one any) bool {
		fields, _ := one.(map[string]any)
		return (fields["type"] == "Complete" || fields["type"] == "Failed") && fields["status"] == "True"
	})
}

// runsActor knows programs that act outside by the last part of their image's name.
func runsActor(object Object) bool {
	containers, _ := at(object, "spec", "template", "spec", "containers").([]any)
	return slices.ContainsFunc(containers, func(one any) bool {
		fields, _ := one.(map[string]any)
		image, _ := fields["image"].(string)
		return slices.Contains([]string{"external-dns", "cluster-autoscaler", "velero"}, cluster.ImageOf(image).Base)
	})
}

// outsideAnnotations name something that exists once: an address, a load balancer, a certificate order, a record.
func outsideAnnotations() []string {
	return []string{
		"external-dns.alpha.kubernetes.io/*",
		"service.beta.kubernetes.io/aws-load-balancer-name",
		"service.beta.kubernetes.io/aws-load-balancer-eip-allocations",
		"service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses",
		"service.beta.kubernetes.io/azure-pip-name",
		"service.beta.kubernetes.io/azure-load-balancer-ipv4",
		"service.beta.kubernetes.io/azure-dns-label-name",
		"kubernetes.digitalocean.com/load-balancer-id",
		"loadbalancer.openstack.org/load-balancer-id",
		"networking.gke.io/load-balancer-ip-addresses",
		"kubernetes.io/ingress.global-static-ip-name",
		"kubernetes.io/ingress.regional-static-ip-name",
		"alb.ingress.kubernetes.io/load-balancer-name",
		"alb.ingress.kubernetes.io/group.name",
		"metallb.universe.tf/loadBalancerIPs", "metallb.io/loadBalancerIPs", "metallb.universe.tf/allow-shared-ip",
		"metallb.io/allow-shared-ip", "io.cilium/lb-ipam-ips", "lbipam.cilium.io/ips", "kube-vip.io/loadbalancerIPs",
		"cert-manager.io/issuer", "cert-manager.io/cluster-issuer", "kubernetes.io/tls-acme",
	}
}

func isOutside(annotation string) bool {
	return step.Matches(outsideAnnotations(), annotation)
}

func namesOutside(object Object) bool {
	for name := range object.GetAnnotations() {
		if isOutside(name) {
			return true
		}
	}
	return text(object, "spec", "loadBalancerIP") != "" || !isEmpty(at(object, "spec", "externalIPs")) ||
		!isEmpty(at(object, "spec", "addresses"))
}

// disarm takes away what acts outside. An annotation keeps its value under another key, where nothing acts on it.
func disarm(object Object) []string {
	var done []string
	annotations := object.GetAnnotations()
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if isOutside(name) {
			_, short, _ := strings.Cut(name, "/")
			annotations[v1alpha1.DisarmedPrefix+short] = annotations[name]
			delete(annotations, name)
			done = append(done, name)
		}
	}
	if len(done) > 0 {
		object.SetAnnotations(annotations)
	}
	for _, name := range []string{"loadBalancerIP", "externalIPs", "addresses"} {
		if !isEmpty(at(object, "spec", name)) && at(object, "spec", name) != "" {
			remove(object, "spec", name)
			done = append(done, "spec."+name)
		}
	}
	return done
}

// suspend suspends an object on the mirror, or says that it does not know how.
func suspend(object Object) error {
	switch kindOf(object) {
	case "CronJob.batch", "Job.batch", "CronWorkflow.argoproj.io", "Kustomization.kustomize.toolkit.fluxcd.io",
		"HelmRelease.helm.toolkit.fluxcd.io", "Workflow.argoproj.io":
		set(object, true, "spec", "suspend")
	case "Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps", "ReplicationController", "Rollout.argoproj.io":
		set(object, int64(0), "spec", "replicas")
	case "Schedule.velero.io":
		set(object, true, "spec", "paused")
	case "ScaledJob.keda.sh", "ScaledObject.keda.sh":
		set(object, "true", "metadata", "annotations", "autoscaling.keda.sh/paused")
	case "DaemonSet.apps":
		// A DaemonSet has no number of pods: one that fits no node has none.
		set(object, "true", "spec", "template", "spec", "nodeSelector", "mirror.theseus.dev/suspended")
	default:
		return fmt.Errorf("Theseus does not know how to suspend a %s: choose skip, disarm or copy", kindOf(object))
	}
	return nil
}
