// The first half of vineyard's example of shared GPU memory, unchanged: creates a buffer, fills it from the CPU, and
// frees it when standard input ends.
//
//   nvcc -std=c++17 -Iinclude/compat vineyard_creator.cu -Lbuild/lib -lgshm_vineyard      with the kernel
//   g++ -std=c++17 -x c++ -Iinclude/compat ...                                            without
//
//   vineyard_creator FOLDER_OR_SOCKET          prints the buffer's id, for vineyard_reader
//   GSHM_VINEYARD_DEVICE=host vineyard_creator FOLDER_OR_SOCKET
#include <cstdio>
#include <cstring>
#include <string>

#include <vineyard.h>

using namespace vineyard;

#ifdef __CUDACC__
__global__ void printKernel(const uint8_t* data) {
    printf("GPU data is: %s\n", reinterpret_cast<const char*>(data));
}
#endif

static size_t data_size() {
    return 4096;
}

static Status create(Client& client, ObjectID& created, std::shared_ptr<MutableBuffer>& held) {
    ObjectID object_id;
    Payload object;
    std::shared_ptr<MutableBuffer> buffer = nullptr;
    RETURN_ON_ERROR(client.CreateGPUBuffer(data_size(), object_id, object, buffer));

    if (buffer->device() != "host") CHECK(!buffer->is_cpu());
    CHECK(buffer->is_mutable());

    {
        CUDABufferMirror mirror(*buffer, false);
        memcpy(mirror.mutable_data(), "hello world", 12);
    }
#ifdef __CUDACC__
    if (!buffer->is_cpu()) {
        printKernel<<<1, 1>>>(buffer->data());
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
    }
#endif
    created = object_id;
    held = buffer;
    return Status::OK();
}

static Status free_it(Client& client, ObjectID object_id) {
    RETURN_ON_ERROR(client.DelData(object_id));
    return Status::OK();
}

int main(int argc, char** argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: vineyard_creator FOLDER_OR_SOCKET\n");
        return 2;
    }
    try {
        Client client;
        VINEYARD_CHECK_OK(client.Connect(argv[1]));
        ObjectID id = InvalidObjectID();
        std::shared_ptr<MutableBuffer> buffer;
        VINEYARD_CHECK_OK(create(client, id, buffer));
        printf("%s\n", ObjectIDToString(id).c_str());
        fflush(stdout);
        while (getchar() != EOF) {
        }
        VINEYARD_CHECK_OK(free_it(client, id));
        printf("freed\n");
    } catch (const std::exception& error) {
        fprintf(stderr, "vineyard_creator: %s\n", error.what());
        return 1;
    }
    return 0;
}
