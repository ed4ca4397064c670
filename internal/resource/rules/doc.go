// Package rules checks the rules of schemas that compare fields (x-kubernetes-validations), which are written in CEL. It is apart from resource, as
// CEL's compiler and libraries are a fifth of what such a program is built from: programs that judge files hand Compile to resource.CheckRules,
// others do without.
package rules
