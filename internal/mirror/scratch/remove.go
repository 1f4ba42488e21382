package scratch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Part is an object of a copy.
type Part struct {
	Kind, Namespace, Name string

	resource schema.GroupVersionResource
	uid      types.UID
	network  bool // it is of the network
}

// asks is 1 for a webhook configuration, and 0 for others.
func (p Part) asks() int {
	if strings.HasSuffix(p.Kind, "WebhookConfiguration") {
		return 1
	}
	return 0
}

func (p Part) String() string { return named(p.Kind, p.Namespace, p.Name) }

// Parts are what rehearsals left on a scratch cluster.
type Parts struct {
	// Namespaces go with everything in them; Objects are in no such namespace.
	Namespaces, Objects []Part
	// Nodes are those that a rehearsal changed.
	Nodes []string
	// Network are the objects of a network that a rehearsal installed, and of its settings; Changed had others before.
	// Both are needed until no pod of the copy is left.
	Network, Changed []Part
	// Others have the label, and no rehearsal set it: they stay.
	Others []Part
	// Unread are kinds and API groups that could not be read, with the reason: they may have more.
	Unread []string
}

// None reports whether there is nothing to remove.
func (p Parts) None() bool {
	return len(p.Namespaces)+len(p.Objects)+len(p.Nodes)+len(p.Network)+len(p.Changed) == 0
}

// Removed counts what Remove has removed, and the objects that have their former settings again (Changed).
type Removed struct{ Objects, Namespaces, Nodes, Network, Changed int }

// Find lists the parts of copies, of whichever original.
func (s *Scratch) Find(ctx context.Context) (Parts, error) {
	var parts Parts
	kinds, err := s.kinds(ctx, &parts)
	if err != nil {
		return parts, err
	}
	var wide []Part
	for _, kind := range kinds {
		some, err := s.marked(ctx, kind, &parts)
		if err != nil {
			return parts, err
		}
		for _, part := range some {
			switch {
			case part.network:
				parts.Network = append(parts.Network, part)
			case kind.resource.Group == "" && kind.resource.Resource == "namespaces":
				parts.Namespaces = append(parts.Namespaces, part)
			default:
				wide = append(wide, part)
			}
		}
	}
	for _, object := range wide {
		if !slices.ContainsFunc(parts.Namespaces, func(n Part) bool { return n.Name == object.Namespace }) {
			parts.Objects = append(parts.Objects, object)
		}
	}
	var nodes *corev1.NodeList
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		nodes, err = s.Client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return parts, err
	}
	for i := range nodes.Items {
		patch, err := rehearsal.Restore(&nodes.Items[i])
		if err != nil {
			return parts, fmt.Errorf("Node %s: %w", nodes.Items[i].Name, err)
		}
		if patch != nil {
			parts.Nodes = append(parts.Nodes, nodes.Items[i].Name)
		}
	}
	return parts, nil
}

// Remove deletes parts and gives the nodes back what they had, and waits until all are gone. If kinds could not be
// read, it removes what is known, and returns an error.
func (s *Scratch) Remove(ctx context.Context, parts Parts) (done Removed, err error) {
	var deleted []Part
	// pods of webhooks end below
	slices.SortStableFunc(parts.Objects, func(a, b Part) int { return cmp.Compare(b.asks(), a.asks()) })
	for _, object := range slices.Concat(parts.Objects, parts.Namespaces) {
		if err := s.delete(ctx, object); err != nil {
			return done, fmt.Errorf("%s: %w", object, err)
		}
		deleted = append(deleted, object)
		if len(deleted) <= len(parts.Objects) {
			done.Objects++
		} else {
			done.Namespaces++
		}
	}
	for _, name := range parts.Nodes {
		changed, err := s.patch(ctx, name, rehearsal.Restore)
		if err != nil && !apierrors.IsNotFound(err) {
			return done, fmt.Errorf("Node %s: %w", name, err)
		}
		if changed {
			done.Nodes++
		}
	}
	if err := s.gone(ctx, deleted); err != nil {
		return done, err
	}
	if done.Changed, err = s.takeBack(ctx, parts.Changed); err != nil {
		return done, err
	}
	slices.SortStableFunc(parts.Network, func(a, b Part) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, object := range parts.Network {
		if err := s.delete(ctx, object); err != nil {
			return done, fmt.Errorf("%s: %w", object, err)
		}
		done.Network++
	}
	if err := s.gone(ctx, parts.Network); err != nil {
		return done, err
	}
	if len(parts.Unread) > 0 {
		return done, &cni.Refusal{Message: "objects of the copy may be left: could not be read: " +
			strings.Join(parts.Unread, "; "),
			Hint: "when they can be read (kubectl get apiservices), run theseus rehearse remove " +
				"again, with the same --context"}
	}
	return done, nil
}

// kind is a resource that can be listed and deleted.
type kind struct {
	resource schema.GroupVersionResource
	name     string
}

// kinds are those that a copy may have objects of. API groups that do not answer are unread, except metrics, which are
// never created.
func (s *Scratch) kinds(ctx context.Context, parts *Parts) (all []kind, err error) {
	var lists []*metav1.APIResourceList
	if err := s.call(ctx, func(context.Context) (err error) {
		s.Client.Discovery.Invalidate()
		parts.Unread = nil
		lists, err = s.Client.Discovery.ServerPreferredResources()
		if partly := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &partly) {
			for version, why := range partly.Groups {
				if !strings.HasSuffix(version.Group, "metrics.k8s.io") {
					parts.Unread = append(parts.Unread, fmt.Sprintf("API group %s (%v)", version, why))
				}
			}
			slices.Sort(parts.Unread)
			return nil
		}
		return err
	}); err != nil {
		return nil, err
	}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, one := range list.APIResources {
			if !strings.Contains(one.Name, "/") && slices.Contains(one.Verbs, "list") &&
				slices.Contains(one.Verbs, "delete") {
				all = append(all, kind{group.WithResource(one.Name), one.Kind})
			}
		}
	}
	return all, nil
}

// marked lists the objects of a kind that a rehearsal made.
func (s *Scratch) marked(ctx context.Context, kind kind, parts *Parts) (all []Part, err error) {
	var list *unstructured.UnstructuredList
	err = s.call(ctx, func(ctx context.Context) (err error) {
		list, err = s.Client.Dynamic.Resource(kind.resource).List(ctx,
			metav1.ListOptions{LabelSelector: rehearsal.MarkLabel})
		return err
	})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		parts.Unread = append(parts.Unread, fmt.Sprintf("%s (forbidden)", kind.resource.GroupResource()))
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", kind.resource.GroupResource(), err)
	}
	for i := range list.Items {
		one := &list.Items[i]
		part := Part{kind.name, one.GetNamespace(), one.GetName(), kind.resource, one.GetUID(),
			one.GetLabels()[rehearsal.NetworkLabel] != ""}
		switch {
		case rehearsal.Changed(one):
			parts.Changed = append(parts.Changed, part)
		case rehearsal.Made(one):
			all = append(all, part)
		case !derived(one):
			parts.Others = append(parts.Others, part)
		}
	}
	return all, nil
}

// derived reports whether a controller made an object from another one, and copied its labels.
func derived(object metav1.Object) bool {
	return len(object.GetOwnerReferences()) > 0 || slices.ContainsFunc(object.GetManagedFields(),
		func(e metav1.ManagedFieldsEntry) bool { return e.Manager == "kube-controller-manager" })
}

// delete deletes the very object that was found, and not one that has its name now.
func (s *Scratch) delete(ctx context.Context, object Part) error {
	err := s.call(ctx, func(ctx context.Context) error {
		return s.Client.Dynamic.Resource(object.resource).Namespace(object.Namespace).Delete(ctx, object.Name,
			metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
				Preconditions: &metav1.Preconditions{UID: &object.uid}})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// goneAtMost bounds the wait for deleted objects: longer than the grace periods of most pods.
const goneAtMost = 5 * time.Minute

// release takes the finalizers of the copy from pods: no other program does.
func (s *Scratch) release(ctx context.Context) error {
	var pods *corev1.PodList
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		pods, err = s.Client.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		return err
	}); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		kept := slices.DeleteFunc(slices.Clone(pod.Finalizers),
			func(f string) bool { return strings.HasPrefix(f, rehearsal.HeldPrefix) })
		if len(kept) == len(pod.Finalizers) {
			continue
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": kept,
			"resourceVersion": pod.ResourceVersion}})
		if err != nil {
			return err
		}
		err = s.call(ctx, func(ctx context.Context) error {
			_, err := s.Client.Typed.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: rehearsal.Manager})
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("the finalizers of the copy's Pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return nil
}

// gone waits until no deleted object is there any more.
func (s *Scratch) gone(ctx context.Context, deleted []Part) error {
	ctx, cancel := context.WithTimeout(ctx, goneAtMost)
	defer cancel()
	for said := 0; len(deleted) > 0; {
		if err := s.release(ctx); err != nil {
			return err
		}
		var left []Part
		for _, object := range deleted {
			err := s.call(ctx, func(ctx context.Context) error {
				_, err := s.Client.Dynamic.Resource(object.resource).Namespace(object.Namespace).Get(ctx,
					object.Name, metav1.GetOptions{})
				return err
			})
			switch {
			case err == nil:
				left = append(left, object)
			case !apierrors.IsNotFound(err):
				return err
			}
		}
		if deleted = left; len(left) > 0 {
			text := fmt.Sprintf("%s still there: %s", cluster.Count(len(left), "object"), left[0])
			if len(left) != said {
				s.Note(text)
				said = len(left)
			}
			if outage.Sleep(ctx, lookAgain) != nil {
				return &cni.Refusal{Message: text, Hint: "they are being deleted: check their finalizers, then run " +
					"theseus rehearse remove again, with the same --context"}
			}
		}
	}
	return nil
}
