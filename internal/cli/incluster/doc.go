// Package incluster is what commands share about migrations that the controller in the cluster runs: whether there is a
// controller, when steps may begin, who has approved a plan, and the controller's conditions as text.
package incluster
