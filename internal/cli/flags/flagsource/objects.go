package flagsource

import (
	"bufio"
	"os"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// kubernetes distinguishes Kubernetes objects from a flag set, by the keys at the beginning.
var kubernetes = regexp.MustCompile(`(?m)^[ \t{-]*"?(apiVersion|kind)"?[ \t]*:`)

// Objects reads a file of Kubernetes objects; ok is false for other sources.
func Objects(text string) (objects []unstructured.Unstructured, ok bool, err error) {
	file, err := os.Open(text)
	if err != nil {
		return nil, false, nil // a source that is not a file
	}
	defer file.Close()
	head, _ := bufio.NewReaderSize(file, 1<<16).Peek(1 << 16) // shorter if the file is
	if !kubernetes.Match(head) {
		return nil, false, nil
	}
	objects, err = kube.ReadObjects(text)
	return objects, true, err
}
