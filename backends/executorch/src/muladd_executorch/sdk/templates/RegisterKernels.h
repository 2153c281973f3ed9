// ${generated_comment}
// Kernels are registered when the program starts; there is nothing to call. Made from muladd-executorch's template.
#pragma once
