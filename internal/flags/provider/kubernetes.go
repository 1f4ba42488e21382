package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// FeatureFlags is the resource of open-feature-operator: core.openfeature.dev/v1beta1.
var FeatureFlags = schema.GroupVersionResource{Group: "core.openfeature.dev", Version: "v1beta1",
	Resource: "featureflags"}

// Object is a flag set in a FeatureFlag of a cluster, at spec.flagSpec.
type Object struct {
	Client          dynamic.Interface
	Namespace, Name string
}

// String implements Source.
func (o Object) String() string { return "featureflag/" + o.Namespace + "/" + o.Name }

func (o Object) resource() dynamic.ResourceInterface {
	return o.Client.Resource(FeatureFlags).Namespace(o.Namespace)
}

// Load implements Source.
func (o Object) Load(ctx context.Context) (*flagset.Set, error) {
	object, err := o.resource().Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return nil, wrap(o, err)
	}
	set, found, err := unstructured.NestedMap(object.Object, "spec", "flagSpec")
	if err != nil || !found {
		return nil, wrap(o, errors.Join(errors.New("it has no spec.flagSpec"), err))
	}
	data, err := json.MarshalIndent(set, "", "  ")
	if err != nil {
		return nil, wrap(o, err)
	}
	return flagset.Parse(o.String(), data, flagset.JSON, flagset.Strict)
}

// Watch implements Source.
func (o Object) Watch(ctx context.Context, changed func()) error {
	events, err := o.resource().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", o.Name).String()})
	if err != nil {
		return wrap(o, err)
	}
	defer events.Stop()
	changed() // covers changes between the last read and the start of the watch
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-events.ResultChan():
			switch {
			case !ok:
				return nil // API servers end watches from time to time
			case event.Type == watch.Error:
				return wrap(o, apierrors.FromObject(event.Object))
			case event.Type == watch.Deleted:
				return wrap(o, errGone)
			}
			changed()
		}
	}
}

// parseObject parses NAMESPACE/NAME.
func parseObject(text string) (namespace, name string, err error) {
	for i := range len(text) {
		if text[i] == '/' && i > 0 && i < len(text)-1 {
			return text[:i], text[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("%q is not of the form NAMESPACE/NAME", text)
}
