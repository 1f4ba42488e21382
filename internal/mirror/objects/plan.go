package objects

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/mirror/image"
)

// World is what was read of the original.
type World struct {
	Source     string   // names the original: at most 63 characters of a label's value
	Namespaces []string // the chosen ones
	Objects    []Object // of these namespaces, and the cluster-wide ones
	Unread     []schema.GroupKind
}

// Options are what a person decided.
type Options struct {
	// Decide has actions by kind (CronJob.batch) or by object (CronJob.batch shop/nightly).
	Decide map[string]Action
	// EmptyVolumes are the claims (namespace/name) that may be empty on the mirror.
	EmptyVolumes []string
	Images       image.Rules
	// Adopt takes over objects that the mirror has already.
	Adopt bool
}

// Item is an object that goes over.
type Item struct {
	Object Object // as it is to be on the mirror; the uids of its owners are the original's
	Action Action // Copy, Suspend or Disarm
	Why    string
	Did    []string // what was changed, but for what Clean does
	Images []image.Edit
	// Autoscaled says that an autoscaler sets how many pods it has: after its creation that is the mirror's matter.
	Autoscaled bool
}

// Left is an object that does not go over.
type Left struct {
	Key Key
	Why string
	Own bool // the cluster has its own, or its owner makes it: it is not missing
}

// Question is what a person has to decide before anything goes over.
type Question struct {
	Key  Key
	Why  string
	Hint string
}

// Volume is a claim, and what waits for its data.
type Volume struct {
	Key       Key
	Size      string
	Class     string
	Backing   string // the volume behind it
	Accepted  bool   // it may be empty on the mirror
	HoldsBack []Key
}

// Plan is what goes over, in waves: what is in one wave does not need anything else of it.
type Plan struct {
	World     World
	Waves     [][]*Item
	Left      []Left
	Volumes   []Volume
	Questions []Question

	options Options
	items   map[Key]*Item
}

// Make decides on everything.
func Make(world World, options Options) *Plan {
	m := &maker{plan: &Plan{World: world, options: options, items: map[Key]*Item{}},
		in: newIndex(world.Objects), fates: map[Key]fate{}}
	var chosen []Object
	for _, object := range world.Objects {
		if key := KeyOf(object); key.Namespace != "" ||
			key.Kind == "Namespace" && key.Group == "" && slices.Contains(world.Namespaces, key.Name) {
			chosen = append(chosen, object)
		}
	}
	over := m.choose(chosen)
	over = append(over, m.needed(over)...)
	m.volumes(over)
	scaled := autoscaled(world.Objects)
	copies := make([]Object, 0, len(over))
	for _, object := range over {
		item := m.item(object)
		key := KeyOf(object)
		item.Autoscaled = scaled[key] && item.Action != Suspend
		m.plan.items[key] = item
		copies = append(copies, item.Object)
	}
	m.pullSecrets()
	for _, wave := range waves(copies) {
		items := make([]*Item, len(wave))
		for i, object := range wave {
			items[i] = m.plan.items[KeyOf(object)]
			items[i].seal(world.Source)
		}
		m.plan.Waves = append(m.plan.Waves, items)
	}
	slices.SortFunc(m.plan.Left, func(a, b Left) int { return compareKeys(a.Key, b.Key) })
	slices.SortFunc(m.plan.Questions, func(a, b Question) int { return compareKeys(a.Key, b.Key) })
	return m.plan
}

type maker struct {
	plan  *Plan
	in    index
	fates map[Key]fate
}

// fate is what becomes of an object. left means that its owner makes it on the mirror.
type fate struct {
	action Action
	why    string
	left   bool
	own    bool // every cluster has its own
}

// choose returns those of the objects that go over, and notes what becomes of the others.
func (m *maker) choose(objects []Object) []Object {
	var over []Object
	for _, object := range objects {
		key := KeyOf(object)
		fate := m.fate(key)
		switch {
		case fate.left || fate.action == Skip:
			m.plan.Left = append(m.plan.Left, Left{key, fate.why, fate.left || fate.own})
		case fate.action == Ask:
			m.plan.Questions = append(m.plan.Questions, Question{key, fate.why,
				fmt.Sprintf("--decide '%s=skip' (or copy), for all of the kind --decide %s=skip, or the annotation "+
					"%s on it", key, key.GroupKind(), DecideAnnotation)})
		default:
			over = append(over, object)
		}
	}
	return over
}

func (m *maker) fate(key Key) fate {
	if known, ok := m.fates[key]; ok {
		return known
	}
	m.fates[key] = fate{action: Ask, why: "its owners form a cycle"} // seen only if they do
	found := m.decideFate(key)
	m.fates[key] = found
	return found
}

func (m *maker) decideFate(key Key) fate {
	object := m.in.exact[key]
	if why := m.clusterOwn(object); why != "" {
		return fate{action: Skip, why: why, own: true}
	}
	if action, by, err := m.decided(object); err != nil {
		return fate{action: Ask, why: err.Error()}
	} else if action != "" {
		return fate{action: action, why: "decided " + by}
	}
	for _, owner := range object.GetOwnerReferences() {
		if owner.Controller == nil || !*owner.Controller {
			continue
		}
		group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group
		keys := m.in.find(reference{Key: Key{group, owner.Kind, key.Namespace, owner.Name}})
		if danger := judge(object); len(keys) == 0 && danger.Action == Skip {
			return fate{action: Skip, why: danger.Why}
		}
		if len(keys) == 0 {
			return fate{action: Ask, why: fmt.Sprintf("it belongs to %s %s, which was not found",
				owner.Kind, owner.Name)}
		}
		switch above := m.fate(keys[0]); {
		case above.action == Skip && !above.left:
			return fate{action: Skip, why: fmt.Sprintf("it belongs to %s, which is not copied", keys[0])}
		case above.action == Ask:
			return fate{action: Skip, why: fmt.Sprintf("it belongs to %s, about which you have to decide", keys[0])}
		default:
			return fate{action: Skip, left: true, why: fmt.Sprintf("the mirror makes it from %s", keys[0])}
		}
	}
	danger := judge(object)
	return fate{action: danger.Action, why: danger.Why}
}

// decided is what a person said about an object: the object's name first, then its annotation, then its kind.
func (m *maker) decided(object Object) (action Action, by string, err error) {
	key := KeyOf(object)
	if action, ok := m.plan.options.Decide[key.String()]; ok {
		return action, "for this object", nil
	}
	if name, ok := object.GetAnnotations()[DecideAnnotation]; ok {
		action, err := ParseAction(name)
		if err != nil {
			return "", "", fmt.Errorf("the annotation %s: %w", DecideAnnotation, err)
		}
		return action, "by its annotation", nil
	}
	return m.plan.options.Decide[key.GroupKind().String()], "for its kind", nil
}

// clusterOwn says why an object is each cluster's own.
func (m *maker) clusterOwn(object Object) string {
	key := KeyOf(object)
	switch key.GroupKind().String() {
	case "Event", "Event.events.k8s.io", "Lease.coordination.k8s.io", "CSIStorageCapacity.storage.k8s.io",
		"PodMetrics.metrics.k8s.io", "Node", "PersistentVolume", "CSINode.storage.k8s.io", "CSIDriver.storage.k8s.io",
		"VolumeAttachment.storage.k8s.io", "CertificateSigningRequest.certificates.k8s.io",
		"FlowSchema.flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io",
		"IPAddress.networking.k8s.io", "ServiceCIDR.networking.k8s.io":
		return "every cluster has its own"
	case "ConfigMap":
		if slices.Contains([]string{"kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt"}, key.Name) {
			return "every cluster has its own"
		}
		if _, leader := object.GetAnnotations()["control-plane.alpha.kubernetes.io/leader"]; leader {
			return "every cluster elects its own leader"
		}
	case "Secret":
		if text(object, "type") == "bootstrap.kubernetes.io/token" {
			return "every cluster has its own"
		}
	case "PriorityClass.scheduling.k8s.io":
		if strings.HasPrefix(key.Name, "system-") {
			return "every cluster has its own"
		}
	case "ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io":
		if object.GetLabels()["kubernetes.io/bootstrapping"] != "" || strings.HasPrefix(key.Name, "system:") {
			return "every cluster has its own"
		}
	case "Endpoints", "EndpointSlice.discovery.k8s.io":
		return m.endpointsOf(object)
	}
	if key.Group == "theseus.dev" {
		return "it belongs to the change of the network"
	}
	return ""
}

// endpointsOf says why endpoints are not copied: a controller makes them from a Service that selects pods.
func (m *maker) endpointsOf(object Object) string {
	name := object.GetName()
	if manager := object.GetLabels()["endpointslice.kubernetes.io/managed-by"]; strings.HasSuffix(manager, ".k8s.io") {
		return "a controller of the mirror makes it"
	}
	service := m.in.exact[Key{"", "Service", object.GetNamespace(), name}]
	if service != nil && !isEmpty(at(service, "spec", "selector")) {
		return "a controller of the mirror makes it"
	}
	return ""
}

// needed returns the cluster-wide objects without which others do not work: their definitions, what they name,
// and what speaks for their service accounts and services.
func (m *maker) needed(over []Object) []Object {
	chosen := map[Key]bool{}
	kinds := map[schema.GroupKind]bool{}
	for _, object := range over {
		chosen[KeyOf(object)] = true
		kinds[KeyOf(object).GroupKind()] = true
	}
	var cluster []Object
	for _, object := range m.plan.World.Objects {
		if key := KeyOf(object); key.Namespace == "" && key.GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
			cluster = append(cluster, object)
		}
	}
	var found []Object
	for fresh := over; len(fresh) > 0; {
		var next []Object
		take := func(object Object) {
			key := KeyOf(object)
			if !chosen[key] && key.Namespace == "" && key.GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
				chosen[key] = true
				kinds[key.GroupKind()] = true
				next = append(next, object)
			}
		}
		for _, object := range fresh {
			for _, ref := range referencesOf(object) {
				for _, key := range m.in.find(ref) {
					take(m.in.exact[key])
				}
			}
		}
		for _, object := range cluster {
			if speaksFor(object, kinds, chosen) {
				take(object)
			}
		}
		next = m.choose(next)
		found = append(found, next...)
		fresh = next
	}
	return found
}

// speaksFor says whether a cluster-wide object defines a kind that goes over, or acts for a service account or a
// service that goes over.
func speaksFor(object Object, kinds map[schema.GroupKind]bool, chosen map[Key]bool) bool {
	switch kindOf(object) {
	case "CustomResourceDefinition.apiextensions.k8s.io":
		return kinds[schema.GroupKind{Group: text(object, "spec", "group"),
			Kind: text(object, "spec", "names", "kind")}]
	case "ClusterRoleBinding.rbac.authorization.k8s.io", "APIService.apiregistration.k8s.io",
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io",
		"MutatingWebhookConfiguration.admissionregistration.k8s.io":
		return slices.ContainsFunc(referencesOf(object), func(ref reference) bool {
			return (ref.Kind == "ServiceAccount" || ref.Kind == "Service") &&
				chosen[Key{"", ref.Kind, ref.Namespace, ref.Name}]
		})
	}
	return false
}

// volumes lists the claims that go over.
func (m *maker) volumes(over []Object) {
	for _, object := range over {
		key := KeyOf(object)
		if kindOf(object) != "PersistentVolumeClaim" {
			continue
		}
		volume := Volume{Key: key, Size: text(object, "spec", "resources", "requests", "storage"),
			Class:    text(object, "spec", "storageClassName"),
			Accepted: slices.Contains(m.plan.options.EmptyVolumes, key.Namespace+"/"+key.Name)}
		if behind := m.in.exact[Key{"", "PersistentVolume", "", text(object, "spec", "volumeName")}]; behind != nil {
			volume.Backing = cmp.Or(text(behind, "spec", "csi", "volumeHandle"),
				text(behind, "spec", "hostPath", "path"), text(behind, "spec", "local", "path"),
				text(behind, "spec", "nfs", "server"), behind.GetName())
		}
		for _, user := range over {
			if mounts(user, key) {
				volume.HoldsBack = append(volume.HoldsBack, KeyOf(user))
			}
		}
		m.plan.Volumes = append(m.plan.Volumes, volume)
		if !volume.Accepted {
			m.plan.Questions = append(m.plan.Questions, Question{key, volume.why(),
				fmt.Sprintf("--empty-volume %s/%s if it may be empty there, or --decide '%s=skip'",
					key.Namespace, key.Name, key)})
		}
	}
}

func (v Volume) why() string {
	why := "its data (" + cmp.Or(v.Size, "no size")
	if v.Class != "" {
		why += ", class " + v.Class
	}
	if v.Backing != "" {
		why += ", " + v.Backing
	}
	why += ") is not copied"
	if len(v.HoldsBack) > 0 {
		var names []string
		for _, key := range v.HoldsBack {
			names = append(names, key.Kind+" "+key.Name)
		}
		why += "; it holds back " + strings.Join(names, ", ")
	}
	return why
}

// mounts says whether the pods of an object use a claim: they name it, or a StatefulSet makes it from a template.
func mounts(object Object, claim Key) bool {
	if object.GetNamespace() != claim.Namespace {
		return false
	}
	for _, ref := range referencesOf(object) {
		if ref.Key == claim {
			return true
		}
	}
	templates, _ := at(object, "spec", "volumeClaimTemplates").([]any)
	return slices.ContainsFunc(templates, func(one any) bool {
		fields, _ := one.(map[string]any)
		meta, _ := fields["metadata"].(map[string]any)
		name, _ := meta["name"].(string)
		rest, ok := strings.CutPrefix(claim.Name, name+"-"+object.GetName()+"-")
		return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
	})
}

// autoscaled are the workloads whose number of pods an autoscaler sets.
func autoscaled(objects []Object) map[Key]bool {
	found := map[Key]bool{}
	for _, object := range objects {
		if KeyOf(object).GroupKind() != (schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}) {
			continue
		}
		for _, ref := range referencesOf(object) {
			found[ref.Key] = true
		}
	}
	return found
}

// item makes what the mirror gets of an object.
func (m *maker) item(object Object) *Item {
	fate := m.fate(KeyOf(object))
	item := &Item{Object: Clean(object), Action: fate.action, Why: fate.why}
	m.owners(item)
	switch fate.action {
	case Suspend:
		if err := suspend(item.Object); err != nil {
			m.plan.Questions = append(m.plan.Questions,
				Question{KeyOf(object), err.Error(), "see theseus mirror copy --help"})
		}
		item.Did = append(item.Did, "suspended")
	case Disarm:
		item.Did = append(item.Did, disarm(item.Object)...)
	}
	item.Images = m.plan.options.Images.Rewrite(item.Object.Object, kindOf(object))
	for _, change := range item.Images {
		item.Did = append(item.Did, change.Path+": "+change.New)
	}
	return item
}

// pullSecrets gives the secrets for registries that have another name on the mirror an entry for that name.
func (m *maker) pullSecrets() {
	for _, item := range m.plan.items {
		if kindOf(item.Object) != "Secret" {
			continue
		}
		for _, host := range m.plan.options.Images.RewriteSecret(item.Object.Object) {
			item.Did = append(item.Did, "an entry for "+host)
		}
	}
}

// owners keeps the references to owners that go over.
func (m *maker) owners(item *Item) {
	var kept []any
	references, _ := at(item.Object, "metadata", "ownerReferences").([]any)
	for _, one := range references {
		fields, _ := one.(map[string]any)
		owners := m.in.find(reference{Key: ownerKey(fields, item.Object.GetNamespace())})
		if len(owners) == 0 {
			continue // it is gone, or may not be read
		}
		if action := m.fate(owners[0]).action; action != Skip && action != Ask {
			kept = append(kept, one)
		}
	}
	if len(kept) > 0 {
		set(item.Object, kept, "metadata", "ownerReferences")
	} else {
		remove(item.Object, "metadata", "ownerReferences")
	}
}

func ownerKey(fields map[string]any, namespace string) Key {
	version, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	name, _ := fields["name"].(string)
	return Key{schema.FromAPIVersionAndKind(version, kind).Group, kind, namespace, name}
}

// seal marks the object as a copy, with a digest of what it is to be.
func (i *Item) seal(source string) {
	set(i.Object, source, "metadata", "labels", MarkLabel)
	summed := i.Object
	if i.Autoscaled {
		summed = summed.DeepCopy()
		remove(summed, "spec", "replicas")
	}
	data, err := json.Marshal(summed.Object) // its maps are sorted
	if err != nil {
		data = []byte(err.Error()) // values of JSON have none
	}
	sum := sha256.Sum256(data)
	set(i.Object, hex.EncodeToString(sum[:12]), "metadata", "annotations", SumAnnotation)
}

// Version is the kind of an object that goes over, with the version in which it does; empty for any other object.
func (p *Plan) Version(key Key) schema.GroupVersionKind {
	if item := p.items[key]; item != nil {
		return item.Object.GroupVersionKind()
	}
	return schema.GroupVersionKind{}
}
