// Package prover reads the certificates of a cluster, adds names to cert-manager's certificates and removes them, waits
// until they are issued, and verifies by TLS handshakes which certificates addresses serve.
package prover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/certs"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

const (
	pageSize = 500
	readers  = 8 // requests under way at once
	manager  = "theseus-certs"
)

// Cluster is where certificates are read and changed.
type Cluster struct{ *kube.Client }

// source is a kind that the world is made of.
type source struct {
	group, kind string
	into        func(*certs.World) *[]*unstructured.Unstructured
	required    bool // every cluster has it
}

func sources() []source {
	certificates := func(w *certs.World) *[]*unstructured.Unstructured { return &w.Certificates }
	issuers := func(w *certs.World) *[]*unstructured.Unstructured { return &w.Issuers }
	routes := func(w *certs.World) *[]*unstructured.Unstructured { return &w.Routes }
	return []source{
		{certs.Group, "Certificate", certificates, false},
		{certs.Group, "Issuer", issuers, false},
		{certs.Group, "ClusterIssuer", issuers, false},
		{"networking.k8s.io", "Ingress", routes, true},
		{"gateway.networking.k8s.io", "Gateway", routes, false},
	}
}

// Read reads the certificates of the given namespaces, by default of all, with their issuers and Secrets. A namespace
// that does not exist, or missing permissions, are errors, because no certificate may be missed.
func (c *Cluster) Read(ctx context.Context, namespaces []string) (certs.World, error) {
	w := certs.World{}
	if _, err := c.Discovery.ServerVersion(); err != nil {
		return w, &kube.UnreachableError{Host: c.Config.Host, Err: err}
	}
	for _, name := range namespaces {
		call, cancel := c.Call(ctx)
		_, err := c.Typed.CoreV1().Namespaces().Get(call, name, metav1.GetOptions{})
		cancel()
		if apierrors.IsNotFound(err) {
			return w, engine.WithHint(fmt.Errorf("there is no namespace %s", name),
				"kubectl get namespaces lists them")
		}
		if err != nil {
			return w, err
		}
	}
	for _, s := range sources() {
		mapping, err := c.Mapper.RESTMapping(schema.GroupKind{Group: s.group, Kind: s.kind})
		if meta.IsNoMatchError(err) && !s.required {
			continue
		}
		if err != nil {
			return w, err
		}
		objects, err := c.list(ctx, c.Dynamic.Resource(mapping.Resource))
		if err != nil {
			return w, fmt.Errorf("reading %s: %w", mapping.Resource.GroupResource(), err)
		}
		if s.into(&w) != &w.Issuers && len(namespaces) > 0 {
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
				return !slices.Contains(namespaces, o.GetNamespace())
			})
		}
		*s.into(&w) = append(*s.into(&w), objects...)
	}
	return w, c.leaves(ctx, &w)
}

// list reads all pages; a list that grew too old between two pages is read again.
func (c *Cluster) list(ctx context.Context, resource dynamic.ResourceInterface) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		call, cancel := c.Call(ctx)
		page, err := resource.List(call, options)
		cancel()
		if apierrors.IsResourceExpired(err) && options.Continue != "" {
			objects, options.Continue = nil, ""
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			objects = append(objects, &page.Items[i])
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return objects, nil
		}
	}
}

// leaves reads the Secrets that certificates are in.
func (c *Cluster) leaves(ctx context.Context, w *certs.World) error {
	w.Leaves, w.Wrong = map[string]*certs.Leaf{}, map[string]error{}
	wanted := map[string]bool{}
	for _, one := range w.Certificates {
		wanted[secretOf(one)] = true
	}
	for _, use := range certs.Uses(w.Routes) {
		wanted[use.Secret] = true
	}
	delete(wanted, "")
	var lock sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for secret := range wanted {
		group.Go(func() error {
			leaf, err := c.leaf(ctx, secret)
			if apierrors.IsForbidden(err) || outage.Passes(err) || ctx.Err() != nil {
				return fmt.Errorf("reading Secret %s: %w", secret, err)
			}
			lock.Lock()
			defer lock.Unlock()
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				w.Wrong[secret] = err
			default:
				w.Leaves[secret] = leaf
			}
			return nil
		})
	}
	return group.Wait()
}

func secretOf(object *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(object.Object, "spec", "secretName")
	return object.GetNamespace() + "/" + name
}

func (c *Cluster) leaf(ctx context.Context, secret string) (*certs.Leaf, error) {
	namespace, name, _ := strings.Cut(secret, "/")
	ctx, cancel := c.Call(ctx)
	defer cancel()
	object, err := c.Typed.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return certs.LeafOf(secret, object.Data)
}

// Write is one object that is changed.
type Write struct {
	Object *unstructured.Unstructured
	// Edit makes the write from the object as it is; nil when there is nothing to do.
	Edit func(*unstructured.Unstructured) (*certs.Edit, error)
}

// Apply makes all writes, each as a compare-and-swap on the version that it was made from. First it makes dry runs of
// all writes: if the API server refuses one, Apply makes none.
func (c *Cluster) Apply(ctx context.Context, writes []Write) error {
	for _, options := range []metav1.PatchOptions{{FieldManager: manager, DryRun: []string{metav1.DryRunAll}},
		{FieldManager: manager}} {
		for i, w := range writes {
			if err := c.write(ctx, w, options); err != nil {
				done := "nothing was changed"
				if len(options.DryRun) == 0 {
					done = fmt.Sprintf("%d of %d were changed; run the command again, or theseus mirror certs back",
						i, len(writes))
				}
				return engine.WithHint(fmt.Errorf("%s: %w", certs.Name(w.Object), err), done)
			}
		}
	}
	return nil
}

// write makes one write, and repeats it after each conflict.
func (c *Cluster) write(ctx context.Context, w Write, options metav1.PatchOptions) error {
	gvk := w.Object.GroupVersionKind()
	mapping, err := c.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	resource := c.Dynamic.Resource(mapping.Resource).Namespace(w.Object.GetNamespace())
	for object := w.Object; ; {
		edit, err := w.Edit(object)
		if err != nil || edit == nil {
			return err
		}
		call, cancel := c.Call(ctx)
		_, err = resource.Patch(call, object.GetName(), types.MergePatchType, edit.Patch, options)
		cancel()
		if !apierrors.IsConflict(err) {
			return err
		}
		call, cancel = c.Call(ctx)
		object, err = resource.Get(call, object.GetName(), metav1.GetOptions{})
		cancel()
		if err != nil {
			return err
		}
	}
}

// Issued is a certificate that is waited for.
type Issued struct {
	Object *unstructured.Unstructured // the Certificate
	Names  []string                   // that it must have
}

// surely is how long cert-manager must have stood still before it counts as having given up: it may not yet have
// looked.
const surely = 10 * time.Second

// Wait returns when the Secret of every certificate has the expected names. After a timeout, or when cert-manager has
// given up on all remaining certificates, it returns an error with what each of them lacks and cert-manager's messages.
func (c *Cluster) Wait(ctx context.Context, wanted []Issued, patience time.Duration, note func(string)) error {
	start := time.Now()
	lacks, since := map[string]string{}, map[string]time.Time{}
	for {
		var left []Issued
		givenUp := 0
		for _, one := range wanted {
			lack, stands, err := c.lacks(ctx, one)
			if err != nil && (!outage.Passes(err) || ctx.Err() != nil) {
				return err
			}
			if err != nil {
				lack = err.Error()
			}
			name := certs.Name(one.Object)
			if lack == "" {
				delete(lacks, name)
				continue
			}
			left = append(left, one)
			if lacks[name] != lack {
				note(name + ": " + lack)
			}
			lacks[name] = lack
			if !stands {
				delete(since, name)
			} else if since[name].IsZero() {
				since[name] = time.Now()
			}
			if stands && time.Since(since[name]) > surely {
				givenUp++
			}
		}
		if wanted = left; len(wanted) == 0 {
			return nil
		}
		if waited := time.Since(start); givenUp == len(wanted) || waited > patience {
			first := wanted[0].Object
			return notIssued(first, len(wanted), min(waited.Round(time.Second), patience),
				lacks[certs.Name(first)]+c.challenged(ctx, wanted[0]), givenUp == len(wanted))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// notIssued is the error of so many certificates that are waited for in vain; lacks is what the first of them lacks.
func notIssued(first *unstructured.Unstructured, count int, waited time.Duration, lacks string, givenUp bool) error {
	hint := "kubectl describe the Certificate's CertificateRequest, Order and Challenges"
	if givenUp {
		hint = fmt.Sprintf("cert-manager retries after an hour or longer: fix the problem that it reports, retry at "+
			"once with cmctl renew -n %s %s, and run this command again", first.GetNamespace(), first.GetName())
	}
	return engine.WithHint(fmt.Errorf("%d certificates are not issued after %s: %s: %s",
		count, waited, certs.Name(first), lacks),
		"the former certificate is still served; "+hint+
			", or remove the names with theseus mirror certs back")
}

// challenged is why the authority cannot yet make sure of names of a certificate, where cert-manager says so.
func (c *Cluster) challenged(ctx context.Context, one Issued) string {
	mapping, err := c.Mapper.RESTMapping(schema.GroupKind{Group: "acme." + certs.Group, Kind: "Challenge"})
	if err != nil {
		return ""
	}
	challenges, err := c.list(ctx, c.Dynamic.Resource(mapping.Resource).Namespace(one.Object.GetNamespace()))
	if err != nil {
		return ""
	}
	said := ""
	for _, challenge := range challenges {
		name, _, _ := unstructured.NestedString(challenge.Object, "spec", "dnsName")
		state, _, _ := unstructured.NestedString(challenge.Object, "status", "state")
		reason, _, _ := unstructured.NestedString(challenge.Object, "status", "reason")
		if reason != "" && state != "valid" &&
			(slices.Contains(one.Names, name) || slices.Contains(one.Names, "*."+name)) {
			said += "; challenge of " + name + ": " + strings.Join(strings.Fields(reason), " ")
		}
	}
	return said
}

// lacks says what a certificate is not yet, and whether cert-manager stands still.
func (c *Cluster) lacks(ctx context.Context, one Issued) (lack string, stands bool, err error) {
	leaf, err := c.leaf(ctx, secretOf(one.Object))
	said := ""
	if now := c.now(ctx, one.Object); now != nil && certs.Wants(now, one.Names) { // else it speaks of other names
		said, stands = certs.Said(now), certs.GivenUp(now)
	}
	switch {
	case apierrors.IsNotFound(err):
		return "there is no Secret " + secretOf(one.Object) + said, stands, nil
	case apierrors.IsForbidden(err) || outage.Passes(err):
		return "", false, err
	case err != nil:
		return err.Error() + said, stands, nil
	}
	if missing := certs.Covers(leaf.Certificate, one.Names); len(missing) > 0 {
		return "Secret " + leaf.Secret + " is not yet for " + strings.Join(missing, ", ") + said, stands, nil
	}
	return "", false, nil
}

// now is an object as it is; nil where it cannot be read.
func (c *Cluster) now(ctx context.Context, object *unstructured.Unstructured) *unstructured.Unstructured {
	mapping, err := c.Mapper.RESTMapping(object.GroupVersionKind().GroupKind())
	if err != nil {
		return nil
	}
	call, cancel := c.Call(ctx)
	defer cancel()
	now, err := c.Dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()).Get(call,
		object.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return now
}
