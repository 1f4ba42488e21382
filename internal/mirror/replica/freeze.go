package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/theseus-cni/theseus/internal/cluster/owner"
	"github.com/theseus-cni/theseus/internal/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Freezer freezes the namespaces of a cluster, and thaws them.
type Freezer struct {
	*Cluster
	Note func(string)
}

const (
	// denials is how many times in a row, each on a connection of its own, a write has to be denied in every
	// namespace: behind one address there may be several API servers, each of which learns of the policy by itself.
	denials = 10
	// proofPatience bounds how long the API servers may take to enforce the policy, or to forget it.
	proofPatience = time.Minute
	betweenTries  = 50 * time.Millisecond
	probeName     = "theseus-freeze-probe"
	freezeManager = "theseus-freeze"
)

// WhoAmI is the user that the cluster takes the caller for.
func (f *Freezer) WhoAmI(ctx context.Context) (string, error) {
	review, err := retried(ctx, func(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
		return f.Typed.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
			metav1.CreateOptions{})
	})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// Current is the freeze that is in force, or nil.
func (f *Freezer) Current(ctx context.Context) (*freeze.Freeze, error) {
	policy, err := retried(ctx, func(ctx context.Context) (*admissionv1.ValidatingAdmissionPolicy, error) {
		return f.Typed.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx,
			freeze.PolicyName, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	current, err := freeze.Read(policy)
	return &current, err
}

// Freeze suspends the GitOps objects that deploy to the namespaces, puts the policy up, and returns when every write
// that must be denied was denied. What fails half-way is thawed by Thaw.
func (f *Freezer) Freeze(ctx context.Context, want freeze.Freeze) (suspended []objects.Key, err error) {
	current, err := f.ready(ctx, want)
	if err != nil {
		return nil, err
	}
	if current != nil {
		want.Since = current.Since
	}
	gitops, err := f.gitops(ctx)
	if err != nil {
		return nil, err
	}
	for _, object := range freeze.WithParents(gitops, want.Namespaces) {
		if owner := metav1.GetControllerOf(object); owner != nil {
			f.Note(fmt.Sprintf("%s is made by %s %s, which may resume it; the API server still denies its writes",
				objects.KeyOf(object), owner.Kind, owner.Name))
		}
		if err := f.change(ctx, object, freeze.Suspend); err != nil {
			return nil, err
		}
		suspended = append(suspended, objects.KeyOf(object))
	}
	if err := f.apply(ctx, want); err != nil {
		return nil, err
	}
	return suspended, f.prove(ctx, want, true)
}

// ready demands that the cluster knows such policies, that the namespaces are there, and that no other freeze is in
// force. It returns the freeze that is in force already.
func (f *Freezer) ready(ctx context.Context, want freeze.Freeze) (*freeze.Freeze, error) {
	current, err := f.Current(ctx)
	if err != nil {
		return nil, err
	}
	if current != nil && (!slices.Equal(current.Namespaces, want.Namespaces) || current.By != want.By ||
		current.Reason != want.Reason) {
		return nil, &Refusal{fmt.Sprintf("%s are frozen since %s by %s: %s", strings.Join(current.Namespaces, ", "),
			current.Since.Format(time.RFC3339), current.By, current.Reason),
			"theseus mirror thaw ends that freeze"}
	}
	if _, err := f.Mapper.RESTMapping(schema.GroupKind{Group: admissionv1.GroupName, Kind: "ValidatingAdmissionPolicy"},
		"v1"); meta.IsNoMatchError(err) {
		return nil, &Refusal{"this cluster has no ValidatingAdmissionPolicy, which Kubernetes has from 1.30 on",
			"stop the pipelines by hand: Theseus cannot prove here that deploys have stopped"}
	} else if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range want.Namespaces {
		if _, err := f.Typed.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			missing = append(missing, name)
		} else if err != nil {
			return nil, err
		}
	}
	if len(missing) > 0 {
		return nil, &Refusal{"there is no namespace " + strings.Join(missing, ", "),
			"kubectl get namespaces lists them"}
	}
	return current, nil
}

func (f *Freezer) apply(ctx context.Context, want freeze.Freeze) error {
	options := metav1.PatchOptions{FieldManager: freezeManager, Force: ptr.To(true)}
	policy, err := json.Marshal(want.Policy())
	if err != nil {
		return err
	}
	binding, err := json.Marshal(want.Binding())
	if err != nil {
		return err
	}
	api := f.Typed.AdmissionregistrationV1()
	if _, err := retried(ctx, func(ctx context.Context) (any, error) {
		return api.ValidatingAdmissionPolicies().Patch(ctx, freeze.PolicyName, types.ApplyPatchType, policy, options)
	}); err != nil {
		return err
	}
	_, err = retried(ctx, func(ctx context.Context) (any, error) {
		return api.ValidatingAdmissionPolicyBindings().Patch(ctx, freeze.PolicyName,
			types.ApplyPatchType, binding, options)
	})
	return err
}

// prove tries writes without effect until they are denied by the policy (or, thawed, until they are not) often enough
// in a row. A user who is exempt cannot prove anything, and gets an error.
func (f *Freezer) prove(ctx context.Context, want freeze.Freeze, frozen bool) error {
	ctx, cancel := context.WithTimeout(ctx, proofPatience)
	defer cancel()
	last := errors.New("nothing was tried")
	for inRow := 0; inRow < denials; {
		client, done, err := f.fresh()
		if err != nil {
			return err
		}
		proven := true
		for _, namespace := range want.Namespaces {
			denied, err := f.try(ctx, client, namespace)
			switch {
			case ctx.Err() != nil:
				done()
				if frozen {
					return engine.WithHint(fmt.Errorf("not frozen: after %s writes still succeed, or get no answer: %w",
						proofPatience, last),
						"run it again as a user whom the freeze denies, neither a controller nor a user of "+
							"--allow; theseus mirror "+
							"thaw undoes the freeze")
				}
				return engine.WithHint(fmt.Errorf("not thawed: after %s writes are still denied: %w",
					proofPatience, last),
					"run it again: the policy is deleted, but an API server behind this address still applies it")
			case err != nil && !denied:
				last = err
				proven = false
				if !passes(err) {
					done()
					return fmt.Errorf("the freeze of %s cannot be proven: %w", namespace, err)
				}
			case denied != frozen:
				last = fmt.Errorf("a write to %s was denied: %v", namespace, denied)
				proven = false
			}
		}
		done()
		if inRow++; !proven {
			inRow = 0
			wait(ctx, betweenTries)
		}
	}
	return nil
}

// try tries to write into a namespace, without effect, and says whether the freeze denied it.
func (f *Freezer) try(ctx context.Context, client kubernetes.Interface, namespace string) (denied bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = client.CoreV1().ConfigMaps(namespace).Create(bounded,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: probeName}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldManager: freezeManager})
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+freeze.PolicyName+"'") {
		return true, nil
	}
	return false, err
}

// fresh is a client with a connection of its own.
func (f *Freezer) fresh() (kubernetes.Interface, func(), error) {
	client, err := rest.HTTPClientFor(uncached(f.Config))
	if err != nil {
		return nil, nil, err
	}
	typed, err := kubernetes.NewForConfigAndClient(f.Config, client)
	return typed, client.CloseIdleConnections, err
}

// uncached is a configuration with a transport of its own: client-go shares transports of equal configurations.
func uncached(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Dial = (&net.Dialer{Timeout: callTimeout}).DialContext
	return own
}

// Thaw takes the policy away, proves that writes pass, and gives the GitOps objects back what they had.
func (f *Freezer) Thaw(ctx context.Context) (*freeze.Freeze, []objects.Key, error) {
	current, err := f.Current(ctx)
	if err != nil {
		return nil, nil, err
	}
	api := f.Typed.AdmissionregistrationV1()
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
		api.ValidatingAdmissionPolicyBindings().Delete, api.ValidatingAdmissionPolicies().Delete} {
		if _, err := retried(ctx, func(ctx context.Context) (any, error) {
			return nil, remove(ctx, freeze.PolicyName, metav1.DeleteOptions{})
		}); err != nil && !apierrors.IsNotFound(err) {
			return nil, nil, err
		}
	}
	if current != nil {
		if err := f.prove(ctx, *current, false); err != nil {
			return nil, nil, err
		}
	}
	gitops, err := f.gitops(ctx)
	if err != nil {
		return nil, nil, err
	}
	var resumed []objects.Key
	for _, object := range gitops {
		if object.GetAnnotations()[freeze.BeforeAnnotation] == "" {
			continue
		}
		if err := f.change(ctx, object, freeze.Resume); err != nil {
			return nil, nil, err
		}
		resumed = append(resumed, objects.KeyOf(object))
	}
	return current, resumed, nil
}

// gitops lists all objects of Argo CD and Flux that the cluster has, in all namespaces.
func (f *Freezer) gitops(ctx context.Context) ([]*unstructured.Unstructured, error) {
	kinds, _, _, err := f.kinds()
	if err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	for _, k := range kinds {
		sample := &unstructured.Unstructured{}
		sample.SetGroupVersionKind(k.resource.GroupVersion().WithKind(k.group.Kind))
		if _, _, known := owner.Suspends(sample); !known {
			continue
		}
		objects, _, err := f.list(ctx, k, "")
		if err != nil {
			return nil, err
		}
		found = append(found, objects...)
	}
	return found, nil
}

// change patches an object, and repeats that after each conflict.
func (f *Freezer) change(ctx context.Context, object *unstructured.Unstructured,
	make func(*unstructured.Unstructured) ([]byte, error)) error {
	gvk := object.GroupVersionKind()
	mapping, err := f.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	resource := f.objects.Resource(mapping.Resource).Namespace(object.GetNamespace())
	for {
		patch, err := make(object)
		if err != nil {
			return fmt.Errorf("%s: %w", objects.KeyOf(object), err)
		}
		if patch == nil {
			return nil
		}
		_, err = retried(ctx, func(ctx context.Context) (any, error) {
			return resource.Patch(ctx, object.GetName(), types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: freezeManager})
		})
		if !apierrors.IsConflict(err) {
			return err
		}
		if object, err = resource.Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
	}
}
