package flagset

import (
	corev1 "k8s.io/api/core/v1"
)

// NodeValues is the evaluation context of a node: targetingKey and node are its name; then labels (an object), zone,
// region, os, arch, osImage, kernel, kubelet and runtime as the node reports them, ip (its first internal address),
// ips, podCIDRs, taints (keys), unschedulable, and created (Unix seconds).
func NodeValues(node *corev1.Node) map[string]any {
	labels := make(map[string]any, len(node.Labels))
	for key, value := range node.Labels {
		labels[key] = value
	}
	info := node.Status.NodeInfo
	values := map[string]any{
		targetingKey: node.Name, "node": node.Name, nodeLabels: labels,
		"zone": node.Labels[corev1.LabelTopologyZone], "region": node.Labels[corev1.LabelTopologyRegion],
		"os": info.OperatingSystem, "arch": info.Architecture, "osImage": info.OSImage, "kernel": info.KernelVersion,
		"kubelet": info.KubeletVersion, "runtime": info.ContainerRuntimeVersion,
		"unschedulable": node.Spec.Unschedulable, "created": float64(node.CreationTimestamp.Unix()),
	}
	ips, ranges, taints := []any{}, []any{}, []any{}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			ips = append(ips, address.Address)
		}
	}
	for _, one := range node.Spec.PodCIDRs {
		ranges = append(ranges, one)
	}
	for _, taint := range node.Spec.Taints {
		taints = append(taints, taint.Key)
	}
	values["ips"], values["podCIDRs"], values["taints"] = ips, ranges, taints
	if len(ips) > 0 {
		values["ip"] = ips[0]
	}
	return values
}

// FlagMetadata is the set's metadata, overridden by the flag's; nil if there is no such flag. Callers must not modify
// it.
func (s *Set) FlagMetadata(key string) map[string]any {
	if f, ok := s.flags[key]; ok {
		return f.metadata
	}
	return nil
}
