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
	"github.com/theseus-cni/theseus/internal/twin"
)

// Removal is what a teardown takes from a mirror: Delete in this order, and what stays of it, and why.
type Removal struct {
	Delete []twin.Object
	Stays  []twin.Left

	// volumes go by themselves with the claims that were copied; what is behind them costs money until then.
	volumes []twin.Object
	kinds   map[twin.Key]kind
}

// Copies says what of a mirror was copied from a cluster, by the identity that its label names, and would go with a
// teardown: objects of the namespaces, the namespaces where nothing of anybody else is left in them, and what is
// cluster-wide. Definitions of kinds stay: others may have objects of them.
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
	r := &Removal{kinds: map[twin.Key]kind{}}
	foreign := map[string][]twin.Key{} // by namespace
	survey := twin.Make(twin.World{Source: of, Namespaces: namespaces, Objects: found.objects}, twin.Options{})
	live := map[twin.Key]twin.Object{}
	for _, object := range found.objects {
		live[twin.KeyOf(object)] = object
	}
	for _, wave := range survey.Waves {
		for _, item := range wave {
			if key := twin.KeyOf(item.Object); key.Namespace != "" && !twin.Ours(live[key], of) {
				foreign[key.Namespace] = append(foreign[key.Namespace], key)
			}
		}
	}
	for _, question := range survey.Questions {
		if key := question.Key; key.Namespace != "" && !twin.Ours(live[key], of) {
			foreign[key.Namespace] = append(foreign[key.Namespace], key)
		}
	}
	for _, k := range kinds {
		if found.refused[k.group] != nil && k.namespaced {
			unread = append(unread, k.group.String())
		}
	}
	var within, wide, spaces []twin.Object
	var other []twin.Key // namespaces that were copied beside these
	for _, object := range found.objects {
		key := twin.KeyOf(object)
		r.kinds[key] = byKind[key.GroupKind().String()]
		if claim := live[claimOf(object)]; claim != nil && twin.Ours(claim, of) {
			r.volume(object)
		}
		if !twin.Ours(object, of) {
			continue
		}
		others := foreign[key.Name]
		switch {
		case key.Namespace != "":
			within = append(within, object)
		case key.Kind == "Namespace" && key.Group == "" && !slices.Contains(namespaces, key.Name):
			other = append(other, key)
		case key.Kind == "Namespace" && key.Group == "" && len(others) > 0:
			r.Stays = append(r.Stays, twin.Left{Key: key, Why: fmt.Sprintf("it has %d objects that were not copied: %s", len(others), twin.Some(others))})
		case key.Kind == "Namespace" && key.Group == "" && len(unread) > 0:
			r.Stays = append(r.Stays, twin.Left{Key: key, Why: "it may have objects of others that cannot be read: " + strings.Join(unread, ", ")})
		case key.Kind == "Namespace" && key.Group == "":
			spaces = append(spaces, object)
		case key.Kind == "CustomResourceDefinition" || key.Kind == "APIService":
			r.Stays = append(r.Stays, twin.Left{Key: key, Why: "objects of its kind would go with it"})
		default:
			wide = append(wide, object)
		}
	}
	if len(other) > 0 {
		for _, object := range wide {
			r.Stays = append(r.Stays, twin.Left{Key: twin.KeyOf(object), Why: "other namespaces were copied that may need it: " + twin.Some(other)})
		}
		wide = nil
	}
	r.Delete = slices.Concat(within, spaces, wide)
	return r, nil
}

// claimOf is the claim that a volume is bound to.
func claimOf(object twin.Object) twin.Key {
	if twin.KeyOf(object).GroupKind() != (schema.GroupKind{Kind: "PersistentVolume"}) {
		return twin.Key{}
	}
	namespace, _, _ := unstructured.NestedString(object.Object, "spec", "claimRef", "namespace")
	name, _, _ := unstructured.NestedString(object.Object, "spec", "claimRef", "name")
	return twin.Key{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
}

// volume notes what becomes of a volume whose claim was copied.
func (r *Removal) volume(object twin.Object) {
	if policy, _, _ := unstructured.NestedString(object.Object, "spec", "persistentVolumeReclaimPolicy"); policy == "Delete" {
		r.volumes = append(r.volumes, object)
		return
	}
	what := "what is behind it"
	if handle, _, _ := unstructured.NestedString(object.Object, "spec", "csi", "volumeHandle"); handle != "" {
		what = handle
	}
	r.Stays = append(r.Stays, twin.Left{Key: twin.KeyOf(object), Why: "its reclaim policy keeps " + what + ", which costs money until you delete both"})
}

// Remove deletes, and waits until everything is gone, with what finalizers stand for, load balancers above all, and the volumes.
func (c *Cluster) Remove(ctx context.Context, r *Removal, note func(string)) error {
	var group errgroup.Group
	group.SetLimit(DefaultWorkers)
	var namespaced, others []twin.Object
	for _, object := range r.Delete {
		if object.GetNamespace() != "" {
			namespaced = append(namespaced, object)
		} else {
			others = append(others, object)
		}
	}
	for _, wave := range [][]twin.Object{namespaced, others} {
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

func (c *Cluster) delete(ctx context.Context, r *Removal, object twin.Object) error {
	uid := object.GetUID()
	_, err := retried(ctx, func(ctx context.Context) (any, error) {
		return nil, c.writer.Resource(r.kinds[twin.KeyOf(object)].resource).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(),
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or gone and made again by somebody else
		return nil
	}
	return err
}

// gone waits until none of the objects is there any more.
func (c *Cluster) gone(ctx context.Context, r *Removal, objects []twin.Object, note func(string)) error {
	for said := ""; ; {
		var left []twin.Key
		for _, object := range objects {
			now, err := retried(ctx, func(ctx context.Context) (*metav1.PartialObjectMetadata, error) {
				return c.writer.Resource(r.kinds[twin.KeyOf(object)].resource).Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if err == nil && now.UID == object.GetUID() {
				left = append(left, twin.KeyOf(object))
			}
		}
		if len(left) == 0 {
			return nil
		}
		text := fmt.Sprintf("%s still there: %s", cluster.Count(len(left), "object"), twin.Some(left))
		if text != said {
			note(text)
			said = text
		}
		objects = slices.DeleteFunc(slices.Clone(objects), func(object twin.Object) bool { return !slices.Contains(left, twin.KeyOf(object)) })
		if wait(ctx, lookAgain); ctx.Err() != nil {
			return &Refusal{text + ": " + ctx.Err().Error(), "look at their finalizers and events: what serves them must be up on the mirror"}
		}
	}
}
