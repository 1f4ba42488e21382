package kube

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// mostOfKind is how many objects of a kind AddWritten reads: a plan may write one object for each node.
const mostOfKind = 100

// AddWritten reads the metadata of the objects that steps write or delete into the snapshot's Written, so that the
// checks can tell who maintains them. Sources says for each kind whether it was read. It is an error if the context
// ends.
func AddWritten(ctx context.Context, client *Client, s *cluster.Snapshot, steps []step.Step) error {
	reader, err := metadata.NewForConfig(client.Config)
	if err != nil {
		return err
	}
	var lock sync.Mutex
	missing := map[schema.GroupKind]string{}
	var kinds []schema.GroupKind
	var tasks []task
	count := map[schema.GroupKind]int{}
	for _, w := range step.Writes(steps) {
		gk := w.GroupKind()
		if count[gk]++; count[gk] == 1 {
			kinds = append(kinds, gk)
		}
		if count[gk] > mostOfKind {
			continue
		}
		tasks = append(tasks, func(ctx context.Context) cluster.Source {
			found, err := written(ctx, client, reader, w)
			lock.Lock()
			defer lock.Unlock()
			switch {
			case err != nil:
				missing[gk] = reason(err)
			case found != nil:
				s.Written = append(s.Written, *found)
			}
			return cluster.Source{}
		})
	}
	if _, err := runTasks(ctx, tasks); err != nil {
		return err
	}
	for _, gk := range kinds {
		source := cluster.Source{Resource: cluster.MetadataOf(gk), From: FromLive, Missing: missing[gk]}
		if source.Missing == "" && count[gk] > mostOfKind {
			source.Missing = fmt.Sprintf("only the first %d of %d were read", mostOfKind, count[gk])
		}
		s.Sources = append(s.Sources, source)
	}
	return nil
}

// written reads the metadata of one object; nil if it, or its kind, does not exist.
func written(ctx context.Context, client *Client, reader metadata.Interface,
	w step.Write) (*metav1.PartialObjectMetadata, error) {
	gv, err := schema.ParseGroupVersion(w.APIVersion)
	if err != nil {
		return nil, err
	}
	mapping, err := client.Mapper.RESTMapping(w.GroupKind(), gv.Version)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := client.Call(ctx)
	defer cancel()
	var of metadata.ResourceInterface = reader.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		of = reader.Resource(mapping.Resource).Namespace(w.Namespace)
	}
	found, err := of.Get(ctx, w.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found.TypeMeta = metav1.TypeMeta{APIVersion: w.APIVersion, Kind: w.Kind}
	cluster.TrimMetadata(found)
	return found, nil
}
