// Package follow shows a run that another process carries out, such as the controller in the cluster, until it ends.
package follow
