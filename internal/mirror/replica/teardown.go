package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

// Removal is the plan of a teardown: the objects to delete, in order, and those that stay, with the reason.
type Removal struct {
	Delete []objects.Object
	Stays  []objects.Left

	// volumes go by themselves with the claims that were copied; what is behind them costs money until then.
	volumes []objects.Object
	kinds   map[objects.Key]kind
}

// Copies finds the objects on a mirror that were copied from a cluster, by the identity in their label, and that a
// teardown would delete: objects in the namespaces, the namespaces without other objects, and cluster-scoped objects.
// CRDs stay, because others may have objects of these kinds.
func (c *Cluster) Copies(ctx context.Context, of string, namespaces []string) (*Removal, error) {
	kinds, _, unread, err := c.kinds()
	if err != nil {
		return nil, fmt.Errorf("the mirror: %w", err)
	}
	found, err := c.read(ctx, kinds, namespaces)
	if err != nil {
		return nil, fmt.Errorf("the mirror: %w", err)
	}
	byKind := map[string]kind{}
	for _, k := range kinds {
		byKind[k.group.String()] = k
	}
	r := &Removal{kinds: map[objects.Key]kind{}}
	foreign := map[string][]objects.Key{} // by namespace
	survey := objects.Make(objects.World{Source: of, Namespaces: namespaces, Objects: found.objects}, objects.Options{})
	live := map[objects.Key]objects.Object{}
	for _, object := range found.objects {
		live[objects.KeyOf(object)] = object
	}
	for _, wave := range survey.Waves {
		for _, item := range wave {
			if key := objects.KeyOf(item.Object); key.Namespace != "" && !objects.Ours(live[key], of) {
				foreign[key.Namespace] = append(foreign[key.Namespace], key)
			}
		}
	}
	for _, question := range survey.Questions {
		if key := question.Key; key.Namespace != "" && !objects.Ours(live[key], of) {
			foreign[key.Namespace] = append(foreign[key.Namespace], key)
		}
	}
	for _, k := range kinds {
		if found.refused[k.group] != nil && k.namespaced {
			unread = append(unread, k.group.String())
		}
	}
	var within, wide, spaces []objects.Object
	var other []objects.Key // namespaces that were copied in addition to these
	for _, object := range found.objects {
		key := objects.KeyOf(object)
		r.kinds[key] = byKind[key.GroupKind().String()]
		if claim := live[claimOf(object)]; claim != nil && objects.Ours(claim, of) {
			r.volume(object)
		}
		if !objects.Ours(object, of) {
			continue
		}
		others := foreign[key.Name]
		switch {
		case key.Namespace != "":
			within = append(within, object)
		case key.Kind == "Namespace" && key.Group == "" && !slices.Contains(namespaces, key.Name):
			other = append(other, key)
		case key.Kind == "Namespace" && key.Group == "" && len(others) > 0:
			r.Stays = append(r.Stays, objects.Left{Key: key,
				Why: fmt.Sprintf("it has %d objects that were not copied: %s", len(others), objects.Some(others))})
		case key.Kind == "Namespace" && key.Group == "" && len(unread) > 0:
			r.Stays = append(r.Stays, objects.Left{Key: key,
				Why: "it may have other objects that cannot be read: " + strings.Join(unread, ", ")})
		case key.Kind == "Namespace" && key.Group == "":
			spaces = append(spaces, object)
		case key.Kind == "CustomResourceDefinition" || key.Kind == "APIService":
			r.Stays = append(r.Stays, objects.Left{Key: key, Why: "all objects of its kind would be deleted with it"})
		default:
			wide = append(wide, object)
		}
	}
	if len(other) > 0 {
		for _, object := range wide {
			r.Stays = append(r.Stays, objects.Left{Key: objects.KeyOf(object),
				Why: "other namespaces were copied that may need it: " + objects.Some(other)})
		}
		wide = nil
	}
	r.Delete = slices.Concat(within, spaces, wide)
	return r, nil
}

// claimOf is the claim that a volume is bound to.
func claimOf(object objects.Object) objects.Key {
	if objects.KeyOf(object).GroupKind() != (schema.GroupKind{Kind: "PersistentVolume"}) {
		return objects.Key{}
	}
	namespace, _, _ := unstructured.NestedString(object.Object, "spec", "claimRef", "namespace")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "claimRef", "name")
	return objects.Key{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}

// volume notes what becomes of a volume whose claim was copied.
func (r *Removal) volume(object objects.Object) {
	if policy, _, _ := unstructured.NestedString(object.Object, "spec",
		"persistentVolumeReclaimPolicy"); policy == "Delete" {
		r.volumes = append(r.volumes, object)
		return
	}
	what := "its backing storage"
	if handle, _, _ := unstructured.NestedString(object.Object, "spec", "csi", "volumeHandle"); handle != "" {
		what = handle
	}
	r.Stays = append(r.Stays, objects.Left{Key: objects.KeyOf(object),
		Why: "its reclaim policy keeps " + what + ", which costs money until you delete both"})
}

// Remove deletes the objects and waits until all are gone, including what finalizers protect, such as load balancers,
// and volumes.
func (c *Cluster) Remove(ctx context.Context, r *Removal, note func(string)) error {
	var group errgroup.Group
	group.SetLimit(DefaultWorkers)
	var namespaced, others []objects.Object
	for _, object := range r.Delete {
		if object.GetNamespace() != "" {
			namespaced = append(namespaced, object)
		} else {
			others = append(others, object)
		}
	}
	for _, wave := range [][]objects.Object{namespaced, others} {
		for _, object := range wave {
			group.Go(func() error { return c.delete(ctx, r, object) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		if err := c.gone(ctx, r, wave, note); err != nil {
			return err
		}
	}
	return c.gone(ctx, r, r.volumes, note)
}

func (c *Cluster) delete(ctx context.Context, r *Removal, object objects.Object) error {
	uid := object.GetUID()
	_, err := retried(ctx, func(ctx context.Context) (any, error) {
		return nil, c.writer.Resource(r.kinds[objects.KeyOf(object)].resource).Namespace(
			object.GetNamespace()).Delete(ctx, object.GetName(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid},
				PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // deleted, or deleted and recreated by another client
		return nil
	}
	return err
}

// gone waits until none of the objects is there any more.
func (c *Cluster) gone(ctx context.Context, r *Removal, wanted []objects.Object, note func(string)) error {
	for said := ""; ; {
		var left []objects.Key
		for _, object := range wanted {
			now, err := retried(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
				return c.writer.Resource(r.kinds[objects.KeyOf(object)].resource).Namespace(object.GetNamespace()).Get(
					ctx, object.GetName(), metav1.GetOptions{})
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if err == nil && now.UID == object.GetUID() {
				left = append(left, objects.KeyOf(object))
			}
		}
		if len(left) == 0 {
			return nil
		}
		text := fmt.Sprintf("%s still there: %s", cluster.Count(len(left), "object"), objects.Some(left))
		if text != said {
			note(text)
			said = text
		}
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(object objects.Object) bool {
			return !slices.Contains(left, objects.KeyOf(object))
		})
		if wait(ctx, lookAgain); ctx.Err() != nil {
			return &Refusal{text + ": " + ctx.Err().Error(),
				"check their finalizers and events: the controller of each must run on the mirror"}
		}
	}
}
