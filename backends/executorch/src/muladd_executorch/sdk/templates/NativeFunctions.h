// Declarations of the selected kernels, from their schemas. Made from muladd-executorch's template.
#pragma once

${headers}

${nativeFunctions_declarations}
