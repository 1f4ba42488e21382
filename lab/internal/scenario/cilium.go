package scenario

import (
	"context"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/image"
)

// SocketLB are the values with which Cilium's chart is rendered for a change: Cilium translates Services when pods
// connect. Without it, v1.20.2 lets single packets past policy, with any network or none before it:
// docs/explanation/cilium-next-to-flannel.md.
var SocketLB = []string{"--set", "socketLB.enabled=true"}

// ImagesOf builds the images of Calico or Cilium, for nodes of a network that do not have them. It returns their files.
func ImagesOf(ctx context.Context, programs *build.Cache, name string) ([]string, error) {
	images, err := image.All(ctx, programs, name, "")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, i := range images {
		if strings.HasPrefix(i.Name, "quay.io/"+name+"/") {
			files = append(files, i.Tar)
		}
	}
	return files, nil
}

// Load gives the lab's nodes images.
func (r *Rig) Load(ctx context.Context, files []string) error {
	for _, file := range files {
		if _, err := r.InLab(ctx, "image", "load", file); err != nil {
			return err
		}
	}
	return nil
}
