package check

import (
	"slices"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// HasImage says whether a node lists an image among those that it has. A kubelet lists 50 at most, unless it is told otherwise.
func HasImage(node *corev1.Node, image string) bool {
	wanted := whole(image)
	return slices.ContainsFunc(node.Status.Images, func(i corev1.ContainerImage) bool {
		return slices.ContainsFunc(i.Names, func(name string) bool { return whole(name) == wanted })
	})
}

// whole is an image's name as a runtime knows it: with everything that may be left out, and without a tag before a digest.
func whole(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.String()
}
