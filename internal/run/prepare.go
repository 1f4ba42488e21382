package run

import (
	"context"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// Prepare creates the namespace and the CRDs of the journal, which must exist before anything is done.
func Prepare(ctx context.Context, client *kube.Client) error {
	actor := NewActor(client)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	objects := append(manifest.CRDs(), *manifest.Namespace())
	for i := range objects {
		action := step.Action{Do: step.Apply{Object: &objects[i]}, Title: "create " + step.RefOf(&objects[i]).String()}
		if _, err := actor.Do(ctx, action, nil); err != nil {
			return err
		}
	}
	for i := range objects[:len(objects)-1] {
		ref := step.RefOf(&objects[i])
		wait := step.Action{Do: step.Wait{Condition: step.Condition{Is: step.Established{Ref: ref}}},
			Title: "wait for " + ref.String()}
		if _, err := actor.Do(ctx, wait, nil); err != nil {
			return err
		}
	}
	return nil
}
