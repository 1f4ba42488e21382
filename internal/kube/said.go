package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/theseus-cni/theseus/internal/felix"
	"github.com/theseus-cni/theseus/internal/step"
)

// Said is what Felix said last of a parameter on a node, and when, as its log has it. Both are empty when the log of the
// pod that a selector picks there does not say.
func Said(ctx context.Context, client kubernetes.Interface, namespace, selector, node string, what step.Saying) (value, at string, err error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector,
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return "", "", err
	}
	if len(pods.Items) == 0 {
		return "", "", fmt.Errorf("no pod of %s is on %s", selector, node)
	}
	log, err := client.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{Container: what.Container}).Stream(ctx)
	if err != nil {
		return "", "", fmt.Errorf("the log of %s on %s: %w", what.Container, node, err)
	}
	defer log.Close()
	parameter := felix.Parameter{Name: what.Parameter}
	for lines := bufio.NewReader(log); ; {
		line, err := lines.ReadString('\n')
		if v, t, ok := parameter.InLog(line); ok {
			value, at = v, t
		}
		if err == io.EOF {
			return value, at, nil
		}
		if err != nil {
			return "", "", fmt.Errorf("the log of %s on %s: %w", what.Container, node, err)
		}
	}
}
